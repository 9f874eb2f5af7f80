"""Offers the built-in rewards, verifiers, sandboxes and sessions to the host.

Specs are imported inside the hooks: at the top, `length` and `format` the rewards would hide these modules.
"""

from __future__ import annotations

from grpo.plugins.contract import CONTRACT
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import RewardSpec, SandboxSpec, SessionSpec, VerifierSpec

grpo_contract = CONTRACT


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    from grpo.rewards.code.spec import passing
    from grpo.rewards.email import parts as email_parts
    from grpo.rewards.email.rubric import email
    from grpo.rewards.environment import environment
    from grpo.rewards.gsm8k.arithmetic import arithmetic
    from grpo.rewards.gsm8k.proximity import check_numbers, match_format_approximately, match_format_exactly, proximity
    from grpo.rewards.gsm8k.published import correctness, integer, soft_format, strict_format, xmlcount
    from grpo.rewards.judge.reward import judge
    from grpo.rewards.math.accuracy import accuracy
    from grpo.rewards.puzzles.countdown import countdown_score
    from grpo.rewards.puzzles.knights import knights_and_knaves_score
    from grpo.rewards.shape.cosine import cosine
    from grpo.rewards.shape.format import format
    from grpo.rewards.shape.length import length, overlong
    from grpo.rewards.shape.repetition import repetition
    from grpo.rewards.text_match import text_match

    rewards: list[RewardSpec] = [arithmetic, passing, format, correctness, integer, soft_format, strict_format]
    rewards += [xmlcount, length, accuracy, proximity, check_numbers, match_format_approximately, match_format_exactly]
    rewards += [judge, email, email_parts.keywords, email_parts.exact, email_parts.length, email_parts.recipient]
    rewards += [email_parts.signature, countdown_score, knights_and_knaves_score, repetition, overlong, cosine]
    return [*rewards, text_match, environment]


@hookimpl
def grpo_verifiers() -> list[VerifierSpec]:
    from grpo.rewards.code.spec import code
    from grpo.rewards.environment import success
    from grpo.rewards.gsm8k.verifier import gsm8k
    from grpo.rewards.math.verifier import math
    from grpo.rewards.puzzles.countdown import countdown
    from grpo.rewards.puzzles.knights import knights_and_knaves

    return [gsm8k, math, code, countdown, knights_and_knaves, success]


@hookimpl
def grpo_sandboxes() -> list[SandboxSpec]:
    from grpo.rewards.sandbox.spec import docker, local

    return [local, docker]


@hookimpl
def grpo_sessions() -> list[SessionSpec]:
    from grpo.rewards.session.spec import docker, local

    return [local, docker]


if __name__ == "rewards":
    raise ImportError("import this package as grpo.rewards; the folder 'rewards' is not importable under its bare name")
