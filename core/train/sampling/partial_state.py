"""Saves unfinished rollouts in a checkpoint, and restores them.

Written are the tokens of an answer so far and what the policy said of each. A rollout that has ended is written as the
batches that are sampled ahead are (core/train/sampling/ahead_state.py), with what its environment made of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpo.core.env.episodes import Episode
from grpo.core.env.replacement_rows import Place
from grpo.core.record.run_dir import read_json, whole_file
from grpo.core.rollout.turns.partial import PartialRollout
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.train.sampling.ahead_state import restored_rollout, written_rollout

FILE = "partial.json"
Begun = Callable[[Sequence[Episode], Sequence[Sequence[int]]], list[PartialRollout]]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group as it was written."""

    place: Place
    prompt: Sequence[int]
    # of each rollout what it was `sampled_by`, and `tokens` and `logprobs` so far or what it is `whole`
    members: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, group: Sequence[PartialRollout], ended: Callable[[PartialRollout], Trajectory | None]) -> GroupRecord:
        """Returns the record of a group; `ended` returns a rollout that has ended, and None for others."""
        members = []
        for rollout in group:
            whole = ended(rollout)
            so_far = {"tokens": rollout.state.tokens, "logprobs": rollout.state.logprobs}
            members.append(
                {"sampled_by": rollout.sampled_by, **(so_far if whole is None else {"whole": written_rollout(whole)})}
            )
        start = group[0].start
        return cls((start.env, start.index), list(group[0].prompt), members)

    def restored(self, begun: Begun, start: Episode, prompts: Sequence[Sequence[int]]) -> list[PartialRollout]:
        """Returns the group; one whose prompt is another now begins again."""
        group = begun([start] * len(self.members), prompts)
        if list(prompts[0]) != list(self.prompt):
            return group
        for rollout, member in zip(group, self.members, strict=True):
            rollout.sampled_by = [(step, tokens) for step, tokens in member["sampled_by"]]
            if "whole" in member:
                rollout.whole = restored_rollout(start, member["whole"])
            else:
                rollout.state.tokens = list(member["tokens"])
                rollout.state.logprobs = list(member["logprobs"])
                rollout.state.sampled = [True] * len(rollout.state.tokens)
                rollout.state.chosen = list(zip(rollout.state.tokens, rollout.state.logprobs, strict=True))
        return group


def write_partial(folder: Path, begun: int, groups: Sequence[GroupRecord]) -> None:
    """Writes the groups that no step has trained on into a checkpoint, and the last step whose prompts were begun."""
    record = {"begun": begun, "groups": [asdict(group) for group in groups]}
    with whole_file(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(record), encoding="utf-8")


def read_partial(folder: Path) -> tuple[int, list[GroupRecord]]:
    """Reads what `write_partial` wrote; 0 and nothing where a checkpoint has none.

    Raises:
        UsageError: the file was damaged.
    """
    record = read_json(folder / FILE) or {"begun": 0, "groups": []}
    groups = [
        GroupRecord((group["place"][0], group["place"][1]), group["prompt"], group["members"])
        for group in record["groups"]
    ]
    return record["begun"], groups
