"""Defines the values that cross between plugins and the engine. All are frozen; nothing here computes a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from grpo.plugins.errors import SpecError

FinishReason = Literal["stop", "length", "error"]
Isolation = Literal["process", "thread", "inline"]
Scope = Literal["completion", "group"]
Reads = Literal["turn", "rollout"]
Row = Mapping[str, Any]


class Message(TypedDict):
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What the policy wrote in answer to one prompt, with everything known about it.

    Attributes:
        text: the decoded completion without special tokens; for a multi-turn rollout, the last turn, or "" when that
            called a tool and a budget left no turn for an answer.
        messages: the completion as chat messages (one assistant message when there was a single turn; with several,
            the observations of the environment stand between them as user messages, answers of tools as tool messages).
        prompt: the chat messages that were answered.
        row: the dataset row, column name to value.
        token_ids: the sampled tokens, empty for completions that were read from a file.
        logprobs: log-probability of each sampled token under the sampling policy, or None when unknown.
        finish_reason: "stop" (the policy, or the environment, ended it), "length" (a limit of tokens or turns cut it),
            "error" (the environment failed).
        turns: how many times the policy spoke.
        info: of an environment that is stepped: `rewards` (one number for each turn), `terminated`, `truncated`, what
            its last `info` held that JSON can hold, and `failure` (why it failed) in the place of the latter three;
            with tools, `tool_calls` (how many were answered).
        env: the environment that asked, as the run names it; "" for completions that were read from a file.
        group: the number of its group in the batch: the completions of one prompt have the same number, and no two
            groups have one. None for a completion that stands alone, such as the gold solution of a row.
    """

    text: str
    messages: tuple[Message, ...] = ()
    prompt: tuple[Message, ...] = ()
    row: Row = field(default_factory=dict)
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    finish_reason: FinishReason = "stop"
    turns: int = 1
    info: Mapping[str, Any] = field(default_factory=dict)
    env: str = ""
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """A score with figures of how it came about, for a reward that has some; others return the score alone.

    Attributes:
        score: the score of the whole rollout, or None to abstain.
        metrics: name to finite number, for example tokens or seconds; the metrics of a run have the mean of each over
            the completions that report it, as `rewards/NAME/KEY`. Not `mean`, `std`, `abstain` and `failure`.
        turns: what each turn earned of the score, one finite number for each turn of the rollout; what their sum lacks
            is of the outcome, and belongs to the last turn. None: all of it. Read by advantages of single turns.
        reason: why it abstains, in one line for people; None, or of a score, says nothing.
    """

    score: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    turns: Sequence[float] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's judgement of one completion. It judges; it does not score.

    Attributes:
        ok: True (right), False (wrong), None (undecided: nothing can be said either way).
        extracted: the answer that was found in the completion, as text, or None when there is none.
        reason: one line on why, for people.
    """

    ok: bool | None
    extracted: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """An example that documents a reward or verifier and is checked by its tests.

    Attributes:
        completion: the text to judge; of a reward that scores groups, the texts of a group.
        row: the columns that the function needs.
        expect: the score (a float), the verdict (a bool), or None for an abstention or an undecided verdict; of a
            group, one score or None for each text.
        options: options that differ from the defaults.

    Raises:
        SpecError: several texts without an expectation for each.
    """

    completion: str | Sequence[str]
    row: Row = field(default_factory=dict)
    expect: float | bool | Sequence[float | None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.several != isinstance(self.expect, Sequence) or len(self.texts) != len(self.expected):
            given = f"{len(self.texts)} completions" if self.several else "one completion"
            raise SpecError(
                f"a case has {given} and expects {self.expect!r}. Several completions are a group and need a list with "
                'a score, or None for an abstention, for each: Case(["#### 4", "#### 5"], expect=[1.0, 0.0]).'
            )

    @property
    def several(self) -> bool:
        """Whether it is a group of completions."""
        return not isinstance(self.completion, str)

    @property
    def texts(self) -> tuple[str, ...]:
        """Its completions; one, but for a group."""
        return (self.completion,) if isinstance(self.completion, str) else tuple(self.completion)

    @property
    def expected(self) -> tuple[float | bool | None, ...]:
        """What is expected of each of them."""
        return tuple(self.expect) if isinstance(self.expect, Sequence) else (self.expect,)
