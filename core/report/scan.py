"""Reads a run's rollouts once, step by step, to choose among them; keeps no text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo.core.record.browse import OUTCOME
from grpo.core.record.run_dir import RunDir, read_rollouts, rollout_steps

TEXTS = ("prompt", "completion", "columns", "messages", "info")
KINDS = ("", "score", "abstain", "failure")  # what a reward made of a completion, by the number that the page reads


@dataclass(slots=True)
class Scan:
    """What is known of every recorded rollout of a run, N of them in order of step and number."""

    run: RunDir  # where they are
    # step, number, group, tokens: whole numbers; `number` is the position in the step
    step: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    reward: list[float | None] = field(default_factory=list)  # the weighted total, or None
    advantage: list[float] = field(default_factory=list)  # what it was trained with
    failed: list[bool] = field(default_factory=list)  # a reward or the environment failed on it
    size: list[int] = field(default_factory=list)  # characters of its texts
    rewards: list[str] = field(default_factory=list)  # the names of rewards and components, as first met
    # envs, finishes: names of environments and ends, as first met
    envs: list[str] = field(default_factory=list)
    finishes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.step)

    def add(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        names = [name.removeprefix(OUTCOME) for name in (rows[0] if rows else ()) if name.startswith(OUTCOME)]
        _remember(self.rewards, names)
        for number, row in enumerate(rows):
            self.step.append(step)
            self.number.append(number)
            self.group.append(row["group"])
            self.tokens.append(row["tokens"])
            self.reward.append(row["reward"])
            self.advantage.append(row["advantage"])
            self.failed.append(is_failed(row, names))
            self.size.append(sum(len(row[name] or "") for name in TEXTS))
        _remember(self.envs, [row["env"] or "" for row in rows])
        _remember(self.finishes, [row["finish_reason"] for row in rows])


def recorded_steps(run: RunDir) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yields the steps of a run with the rows of their files, but for tokens. UsageError if a file was damaged."""
    for step in rollout_steps(run):
        yield step, read_rollouts(run, step, tokens=False)


def is_failed(row: Mapping[str, Any], rewards: Iterable[str]) -> bool:
    """Returns whether the environment or a reward failed on a rollout."""
    return row["finish_reason"] == "error" or any(row[OUTCOME + name] == "failure" for name in rewards)


def _remember(known: list[str], names: Iterable[str]) -> None:
    known += [name for name in dict.fromkeys(names) if name not in known]
