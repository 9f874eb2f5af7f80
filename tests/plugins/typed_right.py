"""Plugins as authors write them, with annotations: neither mypy nor pyright has anything to say about this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_type

import gymnasium

from grpo import (
    Case,
    Completion,
    EnvSpec,
    Job,
    JobResult,
    RewardSpec,
    SandboxPool,
    SandboxSpec,
    Scored,
    Verdict,
    VerifierSpec,
    env,
    reward,
    sandbox,
    verifier,
)


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


@reward(version=1, scope="group")
def shortest(completions: list[str], answer: str, *, bonus: float = 0.5) -> list[float | None]:
    return [bonus if one == answer else None for one in completions]


@reward
def right(completion: str, answer: str) -> bool:
    return answer in completion


@verifier
def same(completion: str, answer: str) -> Verdict:
    return Verdict(completion == answer)


@verifier
def told(completion: str) -> bool:
    return bool(completion)


@verifier(version=1, name="exactly")
def exact(completion: str, answer: str) -> Verdict:
    return Verdict(completion == answer)


@verifier(version=1, batch=True)
async def all_exact(completions: list[str]) -> list[Verdict]:
    return [Verdict(None) for _ in completions]


class Doubling(gymnasium.Env[str, str]):
    def __init__(self, *, highest: int = 9) -> None:
        self.highest = highest


def rows(split: str, *, highest: int = 9) -> list[dict[str, str]]:
    return [{"question": split, "answer": str(highest)}]


@env(version=1, dataset=rows, rewards=["near"], verifier="exact", max_turns=2)
def doubling(*, highest: int = 9) -> Doubling:
    return Doubling(highest=highest)


@env(version=1)
def untold(*, highest: int = 9) -> Any:
    return Doubling(highest=highest)


@dataclass(frozen=True, kw_only=True)
class Triples:
    size: int = 3

    def env(self) -> gymnasium.Env[Any, Any]:
        return Doubling()

    def rows(self, split: str) -> list[dict[str, str]]:
        return rows(split)


TRIPLES = env(name="triples", version=1)(Triples)
CLASS = env(version=1)(Doubling)


class NoPool:
    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        return [JobResult("unavailable") for _ in jobs]

    def capabilities(self) -> Mapping[str, bool]:
        return {}

    def close(self) -> None: ...

    @classmethod
    def reap(cls) -> int:
        return 0


@sandbox(version=1)
def nowhere(*, slots: int = 1) -> NoPool:
    assert slots
    return NoPool()


assert_type(doubling(highest=3), gymnasium.Env[Any, Any])
assert_type(TRIPLES(size=4).spec is None, bool)
assert_type(nowhere(slots=2), SandboxPool)
envs: list[EnvSpec] = [doubling, untold, TRIPLES, CLASS]
sandboxes: list[SandboxSpec] = [nowhere]


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
