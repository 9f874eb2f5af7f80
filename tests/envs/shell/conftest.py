"""The machines of tests in sessions, closed behind each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo.envs.shell.task import Machines
from grpo.plugins.pools import close_sessions, sessions_of


@pytest.fixture(autouse=True, scope="module")
def _closed() -> Iterator[None]:
    yield
    close_sessions()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    machines = Machines(sessions_of())
    yield machines
    machines.close()
