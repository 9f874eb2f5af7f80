"""Plugins are checked beside the built-in ones alone."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
