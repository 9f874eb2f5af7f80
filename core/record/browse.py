"""Reads the recorded rollouts of a step and collects the requested ones by group."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from grpo.core.record.agent_calls import without_ids
from grpo.core.record.run_dir import RunDir, read_rollouts, rollout_steps
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Completion, Message

SortKey = Literal["reward", "advantage", "length"]
OUTCOME = "outcome."  # begins the names of the columns with what became of a reward
FINISHED = {"stop": "ended by itself", "length": "cut at the limit", "error": "ended by an error"}
LONG = 20  # characters; shorter texts, such as an answer, stand in a prompt by chance


@dataclass(frozen=True, slots=True)
class ShownOutcome:
    """A reward's outcome: "score", "abstain" or "failure", with its score or its reason."""

    outcome: str
    score: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One recorded completion, see `RolloutRow`; `messages` and `info` are empty where no environment was stepped."""

    number: int
    group: int
    prompt: tuple[Message, ...]
    completion: str
    tokens: int
    finish_reason: str
    columns: Mapping[str, Any]
    reward: float | None
    advantage: float
    outcomes: Mapping[str, ShownOutcome]
    messages: tuple[Message, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    env: str = ""
    right: bool | None = None
    why: str | None = None
    turn_rewards: tuple[float, ...] | None = None
    turn_advantages: tuple[float, ...] | None = None
    sampled_by: tuple[tuple[int, int], ...] = ()

    @property
    def failed(self) -> bool:
        return any(outcome.outcome == "failure" for outcome in self.outcomes.values())


def read_step(run: RunDir, step: int | None, *, wasted: bool = False) -> tuple[int, list[Rollout]]:
    """Reads the rollouts of a step, None for the last, or with `wasted` its discarded ones; returns the step too."""
    if step is None:
        steps = rollout_steps(run)
        if not steps:
            raise UsageError(f"{run.path} has no rollouts yet. They appear with the first step.")
        step = steps[-1]
    return step, [from_table(number, row) for number, row in enumerate(read_rollouts(run, step, wasted=wasted))]


def choose(
    rollouts: Sequence[Rollout],
    *,
    sort: SortKey | None = None,
    ascending: bool = False,
    group: int | None = None,
    failures: bool = False,
) -> list[Rollout]:
    """Chooses completions of a group, or that a reward failed on, in the order asked for; without a reward last."""
    groups = [rollout.group for rollout in rollouts]
    if group is not None and group not in groups:
        raise UsageError(f"this step has no group {group}; it has groups {min(groups)} to {max(groups)}.")
    chosen = [r for r in rollouts if group in (None, r.group) and (r.failed or not failures)]
    if sort is not None:
        sign = 1 if ascending else -1
        chosen.sort(key=lambda rollout: _sort_key(rollout, sort, sign))
    return chosen


def by_group(rollouts: Sequence[Rollout]) -> Iterator[list[Rollout]]:
    """Gathers completions by group; groups stand in the order of their first completion, members keep theirs."""
    groups: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    yield from groups.values()


def to_completion(rollout: Rollout) -> Completion:
    """Returns the completion as rewards saw it, without its tokens."""
    messages = rollout.messages or (Message(role="assistant", content=rollout.completion),)
    return Completion(
        rollout.completion,
        messages=messages,
        prompt=rollout.prompt,
        row=dict(rollout.columns),
        turns=sum(message["role"] == "assistant" for message in messages),
        finish_reason="error" if "failure" in rollout.info else "stop",
        info=rollout.info,
        env=rollout.env,
        group=rollout.group,
    )


def worth_showing(rollout: Rollout) -> dict[str, str]:
    """Returns the columns that are no message of the prompt and no long part of one."""
    asked = [message["content"] for message in rollout.prompt]
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in rollout.columns.items()}
    return {
        name: text
        for name, text in texts.items()
        if text not in asked and not (len(text) >= LONG and any(text in message for message in asked))
    }


def as_json(step: int, rollout: Rollout) -> dict[str, Any]:
    """Returns the object that `grpo show --json` prints for a completion."""
    return {
        "step": step,
        "number": rollout.number,
        "group": rollout.group,
        "env": rollout.env,
        "prompt": list(rollout.prompt),
        "completion": rollout.completion,
        "tokens": rollout.tokens,
        "finish_reason": rollout.finish_reason,
        "columns": dict(rollout.columns),
        "right": rollout.right,
        "why": rollout.why,
        "reward": rollout.reward,
        "advantage": rollout.advantage,
        **({"messages": list(rollout.messages), "info": without_ids(rollout.info)} if rollout.info else {}),
        **({"turn_rewards": list(rollout.turn_rewards)} if rollout.turn_rewards is not None else {}),
        **({"turn_advantages": list(rollout.turn_advantages)} if rollout.turn_advantages is not None else {}),
        **({"sampled_by": [list(part) for part in rollout.sampled_by]} if rollout.sampled_by else {}),
        "scores": {name: asdict(outcome) for name, outcome in rollout.outcomes.items()},
    }


def _sort_key(rollout: Rollout, sort: SortKey, sign: int) -> tuple[float, int]:
    values = {"reward": rollout.reward, "advantage": rollout.advantage, "length": rollout.tokens}
    value = values[sort]
    return (math.inf if value is None else sign * value, rollout.number)


def from_table(number: int, row: Mapping[str, Any]) -> Rollout:
    """Returns a completion as a row of its file in `rollouts/` holds it."""
    names = [key.removeprefix(OUTCOME) for key in row if key.startswith(OUTCOME) and row[key] is not None]
    return Rollout(
        number=number,
        group=row["group"],
        prompt=messages_of(row["prompt"]),
        completion=row["completion"],
        tokens=row["tokens"],
        finish_reason=row["finish_reason"],
        columns=json.loads(row["columns"]),
        reward=row["reward"],
        advantage=row["advantage"],
        outcomes={n: ShownOutcome(row[OUTCOME + n], row[f"score.{n}"], row[f"reason.{n}"]) for n in names},
        messages=messages_of(row["messages"] or "[]"),
        info=json.loads(row["info"] or "{}"),
        env=row["env"],
        right=row["right"],
        why=row["why"],
        turn_rewards=_numbers(row["turn_rewards"]),
        turn_advantages=_numbers(row["turn_advantages"]),
        sampled_by=tuple((step, tokens) for step, tokens in row["sampled_by"] or ()),
    )


def messages_of(text: str) -> tuple[Message, ...]:
    """Returns chat messages; what is no text in one, or is not there, becomes one."""
    messages: list[dict[str, Any]] = json.loads(text)
    for message in messages:
        content = message.get("content", "")
        message["content"] = content if isinstance(content, str) else "" if content is None else json.dumps(content)
    return tuple(cast("list[Message]", messages))


def turns_of(row: Mapping[str, Any]) -> int:
    """Returns how many times the policy spoke, from a row as `from_table` reads it."""
    return sum(message["role"] == "assistant" for message in json.loads(row["messages"])) or 1 if row["messages"] else 1


def _numbers(values: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(float(value) for value in values)
