"""Checks the pool of a sandbox or a session: makes, uses and closes it twice, and reports what it raises."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from grpo.core.check.report import Findings
from grpo.plugins.errors import SandboxUnavailable, UsageError, with_article


def try_pool(make: Callable[[], Any], kind: type[Any], use: Callable[[Any], None], findings: Findings) -> None:
    """Makes and uses a pool; what it raises is a finding, except SandboxUnavailable and UsageError."""
    canary = f"GRPO_CANARY_{os.getpid()}"
    os.environ[canary] = "a secret of the host"
    try:
        pool = make()
        if not isinstance(pool, kind):
            name = with_article(type(pool).__name__)
            findings.add("error", "interface", f"the factory returned {name}, which is not a {kind.__name__}")
            return
        try:
            use(pool)
        finally:
            pool.close()
            pool.close()  # twice is allowed
    except (SandboxUnavailable, UsageError):
        raise
    except Exception as error:
        findings.add("error", "interface", f"it raised {type(error).__name__}: {error}")
    finally:
        del os.environ[canary]
