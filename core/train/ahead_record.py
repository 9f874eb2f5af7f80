"""The batch that is sampled one step ahead, in a checkpoint: rollouts in, and the same rollouts out for a resumed run.

What its prompts are and what rewards may read of their rows is known from the episodes; written are the tokens and what
the policy said. Of several processes that train together, each has a file of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo.core.env.episodes import Episode
from grpo.core.processes.rank import rank
from grpo.core.record.run_dir import read_json, whole_file
from grpo.core.rollout.turns.play import Trajectory, completed
from grpo.core.rollout.types import Sampled


def file_of(process: int) -> str:
    """Returns the name of the file that a process writes."""
    return f"ahead-{process}.json" if process else "ahead.json"


@dataclass(frozen=True, slots=True)
class AheadRecord:
    """A batch as it was written.

    Attributes:
        prompts: token ids, one prompt for each rollout.
        rollouts: what `rollouts_of` makes rollouts of.
        mean, largest: difference in nats between the engine that sampled it and the policy.
    """

    prompts: list[list[int]]
    rollouts: list[Mapping[str, Any]]
    mean: float
    largest: float

    def rollouts_of(self, starts: Sequence[Episode], prompts: Sequence[Sequence[int]]) -> list[Trajectory] | None:
        """Returns the rollouts, or None when these are not the prompts that they answer.

        Args:
            starts: the episodes of the batch.
            prompts: their token ids.
        """
        if [list(prompt) for prompt in prompts] != self.prompts:
            return None
        return [_restored(episode, one) for episode, one in zip(starts, self.rollouts, strict=True)]


def write_ahead(
    folder: Path, prompts: Sequence[Sequence[int]], rollouts: Sequence[Trajectory], *, mean: float, largest: float
) -> None:
    """Writes a batch into a checkpoint."""
    written = {
        "prompts": [list(prompt) for prompt in prompts],
        "rollouts": [_written(one) for one in rollouts],
        "mean": mean,
        "largest": largest,
    }
    with whole_file(folder / file_of(rank())) as unfinished:
        unfinished.write_text(json.dumps(written), encoding="utf-8")


def read_ahead(folder: Path) -> AheadRecord | None:
    """Reads the batch of a checkpoint; None when it has none.

    Raises:
        UsageError: the file was damaged.
    """
    found = read_json(folder / file_of(rank()))
    return None if found is None else AheadRecord(**found)


def _written(one: Trajectory) -> dict[str, Any]:
    said = one.completion
    return {
        "token_ids": one.token_ids,
        "logprobs": one.logprobs,
        "sampled": one.sampled,
        "text": said.text,
        "messages": said.messages,
        "finish_reason": said.finish_reason,
        "turns": said.turns,
        "info": dict(said.info),
    }


def _restored(episode: Episode, one: Mapping[str, Any]) -> Trajectory:
    whole = zip(one["token_ids"], one["logprobs"], one["sampled"], strict=True)
    chosen = [(token, logprob) for token, logprob, sampled in whole if sampled]
    own = Sampled(tuple(token for token, _ in chosen), tuple(logprob for _, logprob in chosen), one["finish_reason"])
    completion = replace(
        completed(episode, one["text"], own), messages=tuple(one["messages"]), turns=one["turns"], info=one["info"]
    )
    return Trajectory(tuple(one["token_ids"]), tuple(one["logprobs"]), tuple(one["sampled"]), completion)
