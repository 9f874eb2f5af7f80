"""Wraps our rewards, unmodified, as reward functions of TRL and verifiers or scorers of Inspect.

A reward keeps its executor, its time limit and its retries there. What is no score becomes the library's form of that
(docs/interop.md), and never a silent zero.

TRL and verifiers add up what there is: beside other rewards a missing one counts nothing; a rubric avoids that. A
reward of groups works in TRL, which passes the completions of a prompt side by side; the others show a reward one
completion and are refused. The libraries are imported when their function is called.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from grpo.core.scoring.scorer import Outcome, Scorer
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.errors import PluginError, UsageError
from grpo.plugins.host import bound_of
from grpo.plugins.specs import RewardSpec
from grpo.plugins.types import Completion, Message

if TYPE_CHECKING:
    from inspect_ai.scorer import Scorer as InspectScorer  # type: ignore[import-not-found,unused-ignore]

Source = str | Mapping[str, Any] | RewardSpec | BoundReward
_log = logging.getLogger("grpo.interop")


class LentReward:
    """A bound reward with a lazily started scorer; may be pickled, safe in threads. UsageError: a wrong SPEC."""

    def __init__(self, source: Source) -> None:
        self._source = source
        if not isinstance(source, str | Mapping | RewardSpec | BoundReward):
            raise UsageError(
                f"{source!r:.80} is not a reward of grpo. Give a SPEC, or what @reward or rubric returned."
            )
        self.bound = bound_of(source, BoundReward)
        self._scorer: Scorer | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[LentReward], tuple[Source]]:
        return (LentReward, (self._source,))

    @property
    def name(self) -> str:
        """The reward's name, or its alias."""
        return self.bound.name

    def score(self, completions: Sequence[Completion]) -> dict[str, list[Outcome]]:
        """Scores completions; a rubric's components follow it."""
        with self._lock:
            if self._scorer is None:
                self._scorer = Scorer([self.bound])
        return self._scorer.score(completions)

    async def score_one(self, completion: Completion) -> dict[str, Outcome]:
        """Scores one completion without blocking the event loop."""
        scored = await asyncio.to_thread(self.score, [completion])
        return {name: outcomes[0] for name, outcomes in scored.items()}

    def refuse_groups(self, library: str) -> None:
        """Raises UsageError, with what works, for a reward of groups: this library shows it one completion."""
        if self.bound.grouped:
            raise UsageError(
                f"reward '{self.name}' scores the completions of a prompt together, and {library} shows a reward one "
                "at a time. Use it with grpo or TRL (to_trl), or write one that scores a completion by itself."
            )

    def failed(self, reason: str | None) -> PluginError:
        return PluginError(f"{reason} (a failure is not a score; find its cause with grpo score on this completion)")


class TrlReward:
    """A reward function for `trl.GRPOTrainer(reward_funcs=[...])`; see `to_trl`."""

    def __init__(self, lent: LentReward, on_failure: Literal["raise", "skip"], group_size: int | None) -> None:
        self._lent = lent
        self._on_failure = on_failure
        self._group_size = group_size
        self.__name__ = lent.name

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_metric: Any = None,
        **columns: Any,
    ) -> list[float | None]:
        rows = _rows(columns, len(completions))
        ids = completion_ids if completion_ids is not None else [()] * len(completions)
        size = self._group_size
        if size is not None:
            self._refuse_split_groups(prompts, size)
        scored = self._lent.score(
            [
                replace(_completion(prompt, completion, row, tokens), group=None if size is None else number // size)
                for number, (prompt, completion, row, tokens) in enumerate(
                    zip(prompts, completions, rows, ids, strict=True)
                )
            ]
        )
        outcomes = scored[self._lent.name]
        failures = [outcome.reason for outcome in outcomes if outcome.kind == "failure"]
        if failures and self._on_failure == "raise":
            raise self._lent.failed(failures[0])
        if failures:
            _log.warning("%d of %d completions are not scored: %s", len(failures), len(outcomes), failures[0])
        if log_metric is not None:
            _log_parts(scored, self._lent.name, log_metric)
        return [outcome.score for outcome in outcomes]

    def _refuse_split_groups(self, prompts: Sequence[Any], size: int) -> None:
        groups = [prompts[first : first + size] for first in range(0, len(prompts), size)]
        if not all(len(group) == size and all(prompt == group[0] for prompt in group) for group in groups):
            raise UsageError(
                f"reward '{self._lent.name}' scores groups of {size} completions, and TRL handed over {len(prompts)} "
                f"that are no such groups. Give to_trl the num_generations of GRPOConfig, and choose "
                "per_device_train_batch_size * steps_per_generation (and per_device_eval_batch_size) as multiples of "
                "it, so that no process has a part of a group."
            )


def to_trl(
    source: Source, *, on_failure: Literal["raise", "skip"] = "raise", num_generations: int | None = None
) -> TrlReward:
    """Makes a reward function for `trl.GRPOTrainer` of a reward.

    The columns of the dataset are those that the reward names. The weight of a SPEC is not used: TRL has
    `GRPOConfig.reward_weights`.

    Args:
        source: a SPEC, its table, or what `@reward` or `rubric` returned.
        on_failure: "raise" ends the training with the plugin's name, as an exception of any reward function does. With
            "skip" the completion gets None and a line in the log: TRL leaves it out of its group where this is its
            only reward function, but where there are others, it counts nothing beside them.
        num_generations: that of `GRPOConfig`, for a reward that scores groups: so many completions side by side are
            the group of a prompt, which is checked in every call.

    Raises UsageError for a SPEC that names no reward, options that it does not take, another `on_failure`, or a reward
    of groups whose size is not given.
    """
    if on_failure not in ("raise", "skip"):
        raise UsageError(f"on_failure is {on_failure!r}; it is 'raise' or 'skip'.")
    whole = isinstance(num_generations, int) and not isinstance(num_generations, bool) and num_generations > 0
    if num_generations is not None and not whole:
        raise UsageError(
            f"num_generations is {num_generations!r}; it is a whole number of completions, as in GRPOConfig."
        )
    lent = LentReward(source)
    if lent.bound.grouped and num_generations is None:
        raise UsageError(
            f"reward '{lent.name}' scores the completions of a prompt together. Say how many TRL samples: "
            "to_trl(..., num_generations=8), as in GRPOConfig."
        )
    return TrlReward(lent, on_failure, num_generations if lent.bound.grouped else None)


def to_verifiers(source: Source, *, weight: float | None = None) -> Any:
    """Makes a reward of a verifiers task (`verifiers.v1`) of a reward: a SPEC, its table, a spec or a rubric.

    Set it in the body of a task: `near = grpo.to_verifiers("proximity")`. The columns are the fields of the task's
    data; the completion is the trace's last reply. The components of a rubric become metrics. `weight`: its weight in
    the trace's reward; default: that of the SPEC, or 1.

    Raises UsageError for a SPEC that names no reward, options that it does not take, or a reward that scores groups;
    ImportError without verifiers.
    """
    lent = LentReward(source)
    lent.refuse_groups("verifiers")
    import verifiers.v1 as vf  # type: ignore[import-not-found,unused-ignore]

    async def reward(self: Any, task: Any, trace: Any) -> dict[str, float]:
        prompt = task.prompt if isinstance(task.prompt, str) else [m.model_dump() for m in task.prompt or []]
        scored = await lent.score_one(_completion(prompt, trace.last_reply, task.model_dump(), ()))
        own = scored[lent.name]
        if own.kind == "failure":
            raise lent.failed(own.reason)
        trace.record_metric(f"{lent.name}/abstain", float(own.score is None))
        for name, outcome in scored.items():
            if name != lent.name and outcome.score is not None:
                trace.record_metric(name, outcome.score)
        return {} if own.score is None else {lent.name: own.score}

    reward.__name__ = lent.name
    return vf.reward(reward, weight=lent.bound.weight if weight is None else weight)


def to_inspect(source: Source, *, target: str = "answer") -> InspectScorer:
    """Makes an Inspect scorer, with mean and standard error, of a reward: a SPEC, its table, a spec or a rubric.

    The columns are the metadata of the sample. The components of a rubric are in the score's metadata. `target`: the
    column that gets the sample's target, unless the metadata has it.

    Raises UsageError for a SPEC that names no reward, options that it does not take, or a reward that scores groups;
    ImportError without inspect_ai.
    """
    lent = LentReward(source)
    lent.refuse_groups("Inspect")
    from inspect_ai.scorer import Score, mean, scorer, stderr

    @scorer(metrics=[mean(), stderr()], name=lent.name)  # type: ignore[untyped-decorator,unused-ignore]
    def lent_scorer() -> Any:
        async def score(state: Any, goal: Any) -> Any:
            prompt = state.input if isinstance(state.input, str) else [m.model_dump() for m in state.input]
            row = {target: goal.text, **(state.metadata or {})}
            text = state.output.completion
            scored = await lent.score_one(_completion(prompt, text, row, ()))
            own = scored.pop(lent.name)
            parts = {name: outcome.score for name, outcome in scored.items()} or None
            if own.kind == "failure":
                return Score.unscored(reason="scoring_failed", explanation=own.reason, answer=text, metadata=parts)
            if own.score is None:
                return Score.unscored(reason="abstained", explanation=own.reason, answer=text, metadata=parts)
            return Score(value=own.score, answer=text, metadata=parts)

        return score

    made: InspectScorer = lent_scorer()
    return made


def _rows(columns: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Returns one row for each completion; what is not a column (TRL's state and its callables) is left out."""
    lists = {name: values for name, values in columns.items() if isinstance(values, list) and len(values) == count}
    return [{name: values[index] for name, values in lists.items()} for index in range(count)]


def _completion(prompt: Any, content: Any, row: Mapping[str, Any], tokens: Sequence[int]) -> Completion:
    messages = _messages(content, "assistant")
    spoken = [message["content"] for message in messages if message["role"] == "assistant"]
    return Completion(
        text=spoken[-1] if spoken else "",
        messages=messages,
        prompt=_messages(prompt, "user"),
        row=row,
        token_ids=tuple(tokens),
        turns=max(1, len(spoken)),
    )


def _messages(content: Any, role: str) -> tuple[Message, ...]:
    if isinstance(content, str):
        return (Message(role=role, content=content),)
    return tuple(Message(role=str(m.get("role", role)), content=str(m.get("content") or "")) for m in content or ())


def _log_parts(scored: Mapping[str, Sequence[Outcome]], own: str, log_metric: Any) -> None:
    for name, outcomes in scored.items():
        for kind in ("abstain", "failure"):
            log_metric(f"{name}/{kind}", sum(outcome.kind == kind for outcome in outcomes) / len(outcomes))
        scores = [outcome.score for outcome in outcomes if outcome.score is not None]
        if name != own and scores:
            log_metric(f"{name}/mean", sum(scores) / len(scores))
