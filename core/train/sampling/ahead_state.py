"""Saves the batches that were sampled ahead in a checkpoint, a file for each process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo.core.env.episodes import Episode
from grpo.core.env.replacement_rows import Place
from grpo.core.processes.rank import rank
from grpo.core.record.run_dir import read_json, whole_file
from grpo.core.rollout.turns.play import Branch, Trajectory, completed
from grpo.core.rollout.types import PromptIds, Sampled
from grpo.core.scoring.early import nothing_begun
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.types import Generation, Wasted


def file_of(process: int, turn: int = 1) -> str:
    """Returns the name of a process's file. `turn`: of the batch, 1 for the next."""
    return f"ahead{f'-{process}' if process else ''}{f'.{turn}' if turn > 1 else ''}.json"


@dataclass(frozen=True, slots=True)
class AheadRecord:
    """A batch as it was written."""

    prompts: list[list[int]]
    rollouts: list[Mapping[str, Any]]  # what `written_rollout` returned of each
    # mean, largest: difference in nats between the engine that sampled it and the policy
    mean: float
    largest: float
    staleness: int = 1  # optimizer steps between the policy that sampled it and the one that it is for
    metrics: Mapping[str, float] = field(default_factory=dict)
    # environment and number of the episode of each rollout, where some were replaced; else empty
    places: list[list[Any]] = field(default_factory=list)
    # of a batch that was filled up, reward name to what it said of each rollout; else None
    outcomes: Mapping[str, list[Mapping[str, Any]]] | None = None
    wasted: list[Mapping[str, Any]] = field(default_factory=list)

    def generation(
        self,
        asked: Sequence[Episode],
        encode: Callable[[Sequence[Episode]], PromptIds],
        episode_at: Callable[[Place], Episode],
    ) -> Generation | None:
        """Returns the batch, unscored unless it was filled up; None if these episodes have other prompts."""
        places = [(env, index) for env, index in self.places] if len(self.places) == len(asked) else map(_place, asked)
        episodes = [
            episode if _place(episode) == place else replace(episode_at(place), group=episode.group)
            for episode, place in zip(asked, places, strict=True)
        ]
        prompts = encode(episodes)
        if [list(prompt) for prompt in prompts] != self.prompts:
            return None
        wasted = []
        for sample in self.wasted:
            env, index = sample["place"]
            start = replace(episode_at((env, index)), group=sample["group"])
            rollout = restored_rollout(start, sample["rollout"])
            own_outcomes = {name: _outcome(outcome) for name, outcome in sample["outcomes"].items()}
            wasted.append(Wasted(sample["group"], start, sample["prompt"], rollout, own_outcomes))
        outcomes = None
        if self.outcomes is not None:
            outcomes = {name: [_outcome(outcome) for outcome in own] for name, own in self.outcomes.items()}
        return Generation(
            episodes,
            prompts,
            [restored_rollout(episode, written) for episode, written in zip(episodes, self.rollouts, strict=True)],
            nothing_begun(),
            staleness=self.staleness,
            metrics=self.metrics,
            outcomes=outcomes,
            wasted=tuple(wasted),
        )


def write_ahead(folder: Path, turn: int, generation: Generation, *, mean: float, largest: float) -> None:
    """Writes a batch into a checkpoint. `turn`: 1 for the batch that comes next."""
    written: dict[str, Any] = {
        "prompts": [list(prompt) for prompt in generation.prompts],
        "rollouts": [written_rollout(rollout) for rollout in generation.rollouts],
        "mean": mean,
        "largest": largest,
        "staleness": generation.staleness,
        "metrics": dict(generation.metrics),
    }
    if generation.outcomes is not None:
        written["places"] = [_place(episode) for episode in generation.episodes]
        written["outcomes"] = {
            name: [_written_outcome(outcome) for outcome in every] for name, every in generation.outcomes.items()
        }
        written["wasted"] = [
            {
                "group": sample.group,
                "place": _place(sample.start),
                "prompt": list(sample.prompt),
                "rollout": written_rollout(sample.rollout),
                "outcomes": {name: _written_outcome(outcome) for name, outcome in sample.outcomes.items()},
            }
            for sample in generation.wasted
        ]
    with whole_file(folder / file_of(rank(), turn)) as unfinished:
        unfinished.write_text(json.dumps(written), encoding="utf-8")


def read_ahead(folder: Path, turn: int) -> AheadRecord | None:
    """Reads a batch of a checkpoint, see `write_ahead`; None when it has none. Raises UsageError."""
    record = read_json(folder / file_of(rank(), turn))
    return None if record is None else AheadRecord(**record)


def _place(episode: Episode) -> Place:
    return episode.env, episode.index


def _written_outcome(outcome: Outcome) -> dict[str, Any]:
    return {**outcome._asdict(), "metrics": None if outcome.metrics is None else dict(outcome.metrics)}


def _outcome(written: Mapping[str, Any]) -> Outcome:
    turns = written["turns"]
    return Outcome(**{**written, "turns": None if turns is None else tuple(turns)})


def written_rollout(rollout: Trajectory) -> dict[str, Any]:
    """Returns a rollout as JSON, without what its episode has."""
    completion = rollout.completion
    return {
        "token_ids": rollout.token_ids,
        "logprobs": rollout.logprobs,
        "sampled": rollout.sampled,
        "text": completion.text,
        "messages": completion.messages,
        "finish_reason": completion.finish_reason,
        "turns": completion.turns,
        "info": dict(completion.info),
        **({"branches": [asdict(branch) for branch in rollout.branches]} if rollout.branches else {}),
    }


def restored_rollout(episode: Episode, written: Mapping[str, Any]) -> Trajectory:
    """Returns the rollout of an episode from what `written_rollout` returned."""
    whole = zip(written["token_ids"], written["logprobs"], written["sampled"], strict=True)
    chosen = [(token, logprob) for token, logprob, sampled in whole if sampled]
    own = Sampled(
        tuple(token for token, _ in chosen), tuple(logprob for _, logprob in chosen), written["finish_reason"]
    )
    completion = replace(
        completed(episode, written["text"], own),
        messages=tuple(written["messages"]),
        turns=written["turns"],
        info=written["info"],
    )
    branches = [
        Branch(**{name: tuple(values) for name, values in branch.items()}) for branch in written.get("branches", ())
    ]
    return Trajectory(
        tuple(written["token_ids"]),
        tuple(written["logprobs"]),
        tuple(written["sampled"]),
        completion,
        branches=tuple(branches),
    )
