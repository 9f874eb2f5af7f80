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
    """A group as it was written.

    Attributes:
        members: of each rollout what it was `sampled_by`, and `tokens` and `logprobs` so far or what it is `whole`.
    """

    place: Place
    prompt: Sequence[int]
    members: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, group: Sequence[PartialRollout], ended: Callable[[PartialRollout], Trajectory | None]) -> GroupRecord:
        """Returns the record of a group; `ended` returns a rollout that has ended, and None for others."""
        members = []
        for one in group:
            whole = ended(one)
            so_far = {"tokens": one.state.tokens, "logprobs": one.state.logprobs}
            members.append(
                {"sampled_by": one.sampled_by, **(so_far if whole is None else {"whole": written_rollout(whole)})}
            )
        start = group[0].start
        return cls((start.env, start.index), list(group[0].prompt), members)

    def restored(self, begun: Begun, start: Episode, prompts: Sequence[Sequence[int]]) -> list[PartialRollout]:
        """Returns the group; one whose prompt is another now begins again."""
        group = begun([start] * len(self.members), prompts)
        if list(prompts[0]) != list(self.prompt):
            return group
        for one, member in zip(group, self.members, strict=True):
            one.sampled_by = [(step, tokens) for step, tokens in member["sampled_by"]]
            if "whole" in member:
                one.whole = restored_rollout(start, member["whole"])
            else:
                one.state.tokens = list(member["tokens"])
                one.state.logprobs = list(member["logprobs"])
                one.state.sampled = [True] * len(one.state.tokens)
                one.state.chosen = list(zip(one.state.tokens, one.state.logprobs, strict=True))
        return group


def write_partial(folder: Path, begun: int, groups: Sequence[GroupRecord]) -> None:
    """Writes the groups that no step has trained on into a checkpoint, and the last step whose prompts were begun."""
    found = {"begun": begun, "groups": [asdict(group) for group in groups]}
    with whole_file(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(found), encoding="utf-8")


def read_partial(folder: Path) -> tuple[int, list[GroupRecord]]:
    """Reads what `write_partial` wrote; 0 and nothing where a checkpoint has none.

    Raises:
        UsageError: the file was damaged.
    """
    found = read_json(folder / FILE) or {"begun": 0, "groups": []}
    groups = [GroupRecord((one["place"][0], one["place"][1]), one["prompt"], one["members"]) for one in found["groups"]]
    return found["begun"], groups
