"""Slips that mypy and pyright find before anything runs; each line with one ends in the mark that the test reads."""

from __future__ import annotations

import gymnasium

from grpo import Verdict, env, reward, sandbox, verifier


@reward(version=1)
def near(completion: str, answer: str, *, tolerance: float = 0.1) -> float:
    return tolerance if completion == answer else 0.0


@reward(version=1, batch=True)
def listed(completions: list[str]) -> list[float]:
    return [1.0 for _ in completions]


@verifier(version=1)
def exact(completion: str, answer: str) -> Verdict:
    return Verdict(completion == answer)


near("4")  # wrong
near("4", 4)  # wrong
near("4", "4", tolerence=0.5)  # wrong
listed("4")  # wrong
text: str = exact("4", "4")  # wrong
number: int = near.name  # wrong


@reward(version=1)  # wrong
def words(completion: str) -> str:
    return completion


@reward(version=1)  # wrong
async def words_later(completion: str) -> str:
    return completion


@reward(version=1)  # wrong
def list_without_batch(completions: list[str]) -> list[float]:
    return [1.0 for _ in completions]


@reward(version=1, batch=True)  # wrong
def batch_without_list(completions: list[str]) -> float:
    return float(len(completions))


@reward(version=1, scope="group")  # wrong
def one_for_all(completions: list[str]) -> float:
    return float(len(completions))


@verifier(version=1)  # wrong
def score(completion: str) -> float:
    return float(len(completion))


@verifier(version=1, batch=True)  # wrong
def one_verdict(completions: list[str]) -> Verdict:
    return Verdict(bool(completions))


@reward(version="1")  # wrong
def version_as_text(completion: str) -> float:
    return float(len(completion))


@reward(version=1, timout=3.0)  # wrong
def misspelt(completion: str) -> float:
    return float(len(completion))


@reward  # wrong
def bare_words(completion: str) -> str:
    return completion


@env(version=1)
def sums(*, size: int = 3) -> gymnasium.Env[str, str]:
    raise NotImplementedError(size)


sums(sise=3)  # wrong
sums(size="3")  # wrong


@env(version=1)  # wrong
def no_environment(*, size: int = 3) -> int:
    return size


@env(version=1, max_turn=3)  # wrong
def misspelt_env(*, size: int = 3) -> gymnasium.Env[str, str]:
    return sums(size=size)


@sandbox(version=1)  # wrong
def no_pool(*, slots: int = 1) -> int:
    return slots
