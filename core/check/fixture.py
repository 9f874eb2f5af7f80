"""Provides the pytest fixture `grpo_check`; pytest always loads this module, so it imports nothing but pytest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from grpo.core.check.report import Report

Checker = Callable[..., "Report"]


@pytest.fixture
def grpo_check() -> Checker:
    """Returns `check(spec, **arguments)`, a check chosen by the spec, which fails the test on errors."""
    return _check


def _check(target: Any, **arguments: Any) -> Report:
    __tracebackhide__ = True
    from grpo.core.check.reward import check_env, check_reward, check_verifier
    from grpo.plugins._spec.binding import BoundEnv, BoundReward, BoundVerifier
    from grpo.plugins.specs import EnvSpec, RewardSpec, VerifierSpec

    if isinstance(target, RewardSpec | BoundReward):
        report = check_reward(target, **arguments)
    elif isinstance(target, VerifierSpec | BoundVerifier):
        report = check_verifier(target, **arguments)
    elif isinstance(target, EnvSpec | BoundEnv):
        report = check_env(target, **arguments)
    else:
        raise TypeError(f"grpo_check takes a reward, a verifier or an environment, not {type(target).__name__}")
    if not report.ok:
        pytest.fail(str(report), pytrace=False)
    return report
