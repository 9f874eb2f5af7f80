"""Provides the pytest fixture `grpo_check`, which fails a test when a plugin breaks a relation and shows the report.

pytest loads this module in every environment with grpo installed, so it imports nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from grpo.core.check.report import Report

Checker = Callable[..., "Report"]


@pytest.fixture
def grpo_check() -> Checker:
    """Returns `check(spec, **arguments)`, which fails the test on errors and returns the report otherwise.

    The arguments are those of `grpo.check_reward`, `grpo.check_verifier` or `grpo.check_env`, chosen by the spec.
    """
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
