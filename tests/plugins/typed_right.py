"""Plugins as authors write them, with annotations: neither mypy nor pyright has anything to say about this file."""

from __future__ import annotations

from typing import assert_type

from grpo import Case, Completion, RewardSpec, Scored, Verdict, VerifierSpec, reward, verifier


@reward(version=1, range=(0.0, 1.0), cases=[Case("4", {"answer": "4"}, 1.0)])
def near(completion: str, answer: str, *, tolerance: float = 0.1) -> float | None:
    return tolerance if completion == answer else None


@reward(version=1, isolation="thread")
async def asked(completion: Completion, *, host: str = "") -> Scored:
    return Scored(float(len(host)))


@reward(version=1, batch=True, timeout=2.0, aliases={"answer": ["gold"]})
def listed(completions: list[str], answer: list[str]) -> list[float]:
    return [1.0 for _ in zip(completions, answer, strict=True)]


@reward(version=1, batch=True)
async def asked_at_once(completions: list[str]) -> list[float | None]:
    return [None for _ in completions]


@verifier(version=1, name="exactly")
def exact(completion: str, answer: str) -> Verdict:
    return Verdict(completion == answer)


@verifier(version=1, batch=True)
async def all_exact(completions: list[str]) -> list[Verdict]:
    return [Verdict(None) for _ in completions]


async def awaited() -> None:
    assert_type(await asked(Completion("4"), host="here"), Scored)
    assert_type(await asked_at_once(["4"]), list[float | None])
    assert_type(await all_exact(["4"]), list[Verdict])


assert_type(near("4", "4", tolerance=0.5), float | None)
assert_type(listed(["4"], ["4"]), list[float])
assert_type(exact("4", answer="4"), Verdict)
assert_type(near.name, str)
assert_type(near.range, tuple[float, float])
assert_type(exact.timeout, float)
rewards: list[RewardSpec] = [near, asked, listed, asked_at_once]
verifiers: list[VerifierSpec] = [exact, all_exact]
