"""Saves the batches that were sampled ahead in a checkpoint, and restores them.

What its prompts are and what rewards may read of their rows is known from the episodes; written are the tokens and what
the policy said. Of several processes that train together, each has a file of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.core.env.episodes import Episode
from grpo.core.env.prompts import encode_episodes
from grpo.core.env.replacement_rows import Place
from grpo.core.processes.rank import rank
from grpo.core.record.run_dir import read_json, whole_file
from grpo.core.rollout.turns.play import Branch, Trajectory, completed
from grpo.core.rollout.types import Sampled
from grpo.core.scoring.early import nothing_begun
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.types import Generation, Wasted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def file_of(process: int, turn: int = 1) -> str:
    """Returns the name of the file that a process writes. `turn`: of the batch: 1 comes next."""
    return f"ahead{f'-{process}' if process else ''}{f'.{turn}' if turn > 1 else ''}.json"


@dataclass(frozen=True, slots=True)
class AheadRecord:
    """A batch as it was written.

    Attributes:
        rollouts: what `rollouts_of` makes rollouts of.
        mean, largest: difference in nats between the engine that sampled it and the policy.
        staleness: optimizer steps between the policy that sampled it and the one that it is for.
        places: environment and number of the episode of each rollout, where some were replaced; else empty.
        outcomes: of a batch that was filled up, reward name to what it said of each rollout; else None.
    """

    prompts: list[list[int]]
    rollouts: list[Mapping[str, Any]]
    mean: float
    largest: float
    staleness: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)
    places: list[list[Any]] = field(default_factory=list)
    outcomes: Mapping[str, list[Mapping[str, Any]]] | None = None
    wasted: list[Mapping[str, Any]] = field(default_factory=list)

    def generation(
        self,
        asked: Sequence[Episode],
        tokenizer: PreTrainedTokenizerBase,
        episode_at: Callable[[Place], Episode],
    ) -> Generation | None:
        """Returns the batch, its scoring yet to begin unless it was filled up; None where these have other prompts."""
        episodes = self.episodes_of(asked, episode_at)
        prompts = encode_episodes(tokenizer, episodes)
        rollouts = self.rollouts_of(episodes, prompts)
        if rollouts is None:
            return None
        return Generation(
            episodes,
            prompts,
            rollouts,
            nothing_begun(),
            staleness=self.staleness,
            metrics=self.metrics,
            outcomes=self.outcomes_of_all(),
            wasted=self.wasted_of(episode_at),
        )

    def episodes_of(self, asked: Sequence[Episode], episode_at: Callable[[Place], Episode]) -> list[Episode]:
        """Returns the episodes that the rollouts answer."""
        if len(self.places) != len(asked):
            return list(asked)
        places = [(env, index) for env, index in self.places]
        return [
            one if (one.env, one.index) == place else replace(episode_at(place), group=one.group)
            for one, place in zip(asked, places, strict=True)
        ]

    def outcomes_of_all(self) -> dict[str, list[Outcome]] | None:
        """Returns reward name to outcomes, None where the batch was not scored yet."""
        if self.outcomes is None:
            return None
        return {name: [_outcome(one) for one in every] for name, every in self.outcomes.items()}

    def wasted_of(self, episode_at: Callable[[Place], Episode]) -> tuple[Wasted, ...]:
        """Returns what was sampled in vain."""
        found = []
        for one in self.wasted:
            env, index = one["place"]
            start = replace(episode_at((env, index)), group=one["group"])
            outcomes = {name: _outcome(outcome) for name, outcome in one["outcomes"].items()}
            found.append(Wasted(one["group"], start, one["prompt"], restored_rollout(start, one["rollout"]), outcomes))
        return tuple(found)

    def rollouts_of(self, episodes: Sequence[Episode], prompts: Sequence[Sequence[int]]) -> list[Trajectory] | None:
        """Returns the rollouts, or None when these are not the prompts that they answer."""
        if [list(prompt) for prompt in prompts] != self.prompts:
            return None
        return [restored_rollout(episode, one) for episode, one in zip(episodes, self.rollouts, strict=True)]


def write_ahead(folder: Path, turn: int, found: Generation, *, mean: float, largest: float) -> None:
    """Writes a batch into a checkpoint.

    Args:
        turn: 1 for the batch that comes next.
        mean, largest: difference in nats between the engine that sampled it and the policy.
    """
    written: dict[str, Any] = {
        "prompts": [list(prompt) for prompt in found.prompts],
        "rollouts": [written_rollout(one) for one in found.rollouts],
        "mean": mean,
        "largest": largest,
        "staleness": found.staleness,
        "metrics": dict(found.metrics),
    }
    if found.outcomes is not None:
        written["places"] = [_place(one) for one in found.episodes]
        written["outcomes"] = {name: [_said(one) for one in every] for name, every in found.outcomes.items()}
        written["wasted"] = [
            {
                "group": one.group,
                "place": _place(one.start),
                "prompt": list(one.prompt),
                "rollout": written_rollout(one.rollout),
                "outcomes": {name: _said(outcome) for name, outcome in one.outcomes.items()},
            }
            for one in found.wasted
        ]
    with whole_file(folder / file_of(rank(), turn)) as unfinished:
        unfinished.write_text(json.dumps(written), encoding="utf-8")


def read_ahead(folder: Path, turn: int) -> AheadRecord | None:
    """Reads a batch of a checkpoint, see `write_ahead`; None when it has none.

    Raises:
        UsageError: the file was damaged.
    """
    found = read_json(folder / file_of(rank(), turn))
    return None if found is None else AheadRecord(**found)


def _place(one: Episode) -> Place:
    return one.env, one.index


def _said(one: Outcome) -> dict[str, Any]:
    return {**one._asdict(), "metrics": None if one.metrics is None else dict(one.metrics)}


def _outcome(said: Mapping[str, Any]) -> Outcome:
    turns = said["turns"]
    return Outcome(**{**said, "turns": None if turns is None else tuple(turns)})


def written_rollout(one: Trajectory) -> dict[str, Any]:
    """Returns a rollout as JSON can hold it; what its episode says of it is left out."""
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
        **({"branches": [asdict(branch) for branch in one.branches]} if one.branches else {}),
    }


def restored_rollout(episode: Episode, one: Mapping[str, Any]) -> Trajectory:
    """Returns the rollout of an episode from what `written_rollout` returned."""
    whole = zip(one["token_ids"], one["logprobs"], one["sampled"], strict=True)
    chosen = [(token, logprob) for token, logprob, sampled in whole if sampled]
    own = Sampled(tuple(token for token, _ in chosen), tuple(logprob for _, logprob in chosen), one["finish_reason"])
    completion = replace(
        completed(episode, one["text"], own), messages=tuple(one["messages"]), turns=one["turns"], info=one["info"]
    )
    branches = [
        Branch(**{name: tuple(values) for name, values in branch.items()}) for branch in one.get("branches", ())
    ]
    return Trajectory(
        tuple(one["token_ids"]),
        tuple(one["logprobs"]),
        tuple(one["sampled"]),
        completion,
        branches=tuple(branches),
    )
