"""Rollouts of several turns: episodes in, trajectories of tokens out, some sampled and some observed.

Theory of operation. All rollouts of a batch advance together: one generation for those still alive, then one step of
each of their environments, side by side (core/env_threads.py), until the environment ends the episode or a budget is
used up. The tokens of a rollout only grow: the prompt, what was sampled, the tokens between (core/chat_turns.py), what
was sampled, and so on. Nothing is tokenised twice, so training computes the log-probabilities of the tokens that were
sampled, in the context that they were sampled in. A rollout ends with sampled tokens; the last observation is only
recorded. An environment that raises, hangs or breaks the contract fails its own rollout and no other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.core.chat_turns import TurnFormat
from grpo.core.env_threads import EnvThreads, Raised
from grpo.core.episodes import Episode, prompt_of
from grpo.core.rollout import Sampled, SamplingParams
from grpo.core.score_outcome import explain
from grpo.plugins.binding import BoundEnv
from grpo.plugins.types import Completion, FinishReason, Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Sample = Callable[[Sequence[Sequence[int]], SamplingParams], Sequence[Sampled]]
LONGEST_FAILURE = 500  # characters


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """How far a rollout may go.

    Attributes:
        turns: how often the policy may speak.
        tokens: after the prompt, sampled and observed ones; a turn begins only where a whole one fits.
        seconds: for one call of an environment.
    """

    turns: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout, without its prompt.

    Attributes:
        token_ids: sampled tokens and, between turns, those of the template and the observation.
        logprobs: of each token as it was sampled, in nats; 0.0 where it was not.
        sampled: which tokens the policy chose.
        completion: what rewards see of it.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampled: tuple[bool, ...]
    completion: Completion


@dataclass(frozen=True, slots=True)
class Player:
    """Plays rollouts of one environment.

    Attributes:
        env: makes a fresh environment for each rollout.
        tokenizer: of the policy.
        form: the text between turns.
        limits: of each rollout.
    """

    env: BoundEnv
    tokenizer: PreTrainedTokenizerBase
    form: TurnFormat
    limits: TurnLimits

    def play(
        self,
        episodes: Sequence[Episode],
        prompts: Sequence[Sequence[int]],
        sample: Sample,
        params: SamplingParams,
        *,
        on_ended: Callable[[int, Completion], None] | None = None,
    ) -> list[Trajectory]:
        """Plays one rollout of each episode.

        Args:
            episodes: one per rollout; members of a group repeat theirs, and start from the same state.
            prompts: the tokens of their prompts.
            sample: token ids in, one completion each out.
            params: how to choose tokens; `max_tokens` is for one turn.
            on_ended: told the number of a rollout when it ends, and what rewards see of it.
        """
        rollouts = [_Rollout(*given) for given in zip(range(len(episodes)), episodes, prompts, strict=True)]
        with EnvThreads(self.env.make, seconds=self.limits.seconds) as threads:
            started = threads.call({one.number: partial(_start, one.episode) for one in rollouts})
            for one in rollouts:
                if isinstance(started[one.number], Raised):
                    one.fail(f"env '{self.env.name}' could not start: {explain(started[one.number].error)}")
            for turn in range(1, self.limits.turns + 1):
                alive = [one for one in rollouts if one.finish is None]
                if not alive:
                    break
                self._turn(turn, alive, threads, sample, params)
                for one in alive:
                    if one.finish is not None and on_ended is not None:
                        on_ended(one.number, one.completion())
        return [one.trajectory(self.tokenizer.eos_token_id) for one in rollouts]

    def _turn(
        self, turn: int, alive: Sequence[_Rollout], threads: EnvThreads, sample: Sample, params: SamplingParams
    ) -> None:
        done = sample([[*one.prompt, *one.tokens] for one in alive], params)
        texts = self.tokenizer.batch_decode([list(found.token_ids) for found in done], skip_special_tokens=True)
        for one, found, text in zip(alive, done, texts, strict=True):
            one.say(found, text)
        answers = threads.call({one.number: partial(_step, one.text) for one in alive})
        for one in alive:
            answer = answers[one.number]
            if isinstance(answer, Raised):
                one.fail(f"env '{self.env.name}' failed in turn {turn}: {explain(answer.error)}")
            elif one.see(answer):
                one.finish = one.cut
            elif turn == self.limits.turns:
                one.finish = "length"
            else:
                between = self.form.ids(self.tokenizer, answer.observation, one.tokens[-1])
                one.go_on(between, self.limits.tokens - params.max_tokens)
            if one.finish is not None:
                threads.release(one.number)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a step returned, checked."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


@dataclass(slots=True)
class _Rollout:
    """A rollout while it is played."""

    number: int
    episode: Episode
    prompt: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    chosen: list[tuple[int, float]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    turns: int = 0
    cut: FinishReason = "stop"
    finish: FinishReason | None = None

    def say(self, found: Sampled, text: str) -> None:
        """Adds a turn of the policy."""
        self.tokens += found.token_ids
        self.logprobs += found.logprobs
        self.sampled += [True] * len(found.token_ids)
        self.chosen += zip(found.token_ids, found.logprobs, strict=True)
        self.messages.append(Message(role="assistant", content=text))
        self.text, self.cut = text, found.finish_reason
        self.turns += 1

    def see(self, answer: _Answer) -> bool:
        """Notes what the environment answered; returns whether it ended the episode."""
        self.rewards.append(answer.reward)
        self.info = {**answer.info, "terminated": answer.terminated, "truncated": answer.truncated}
        if answer.observation:
            self.messages.append(Message(role="user", content=answer.observation))
        return answer.terminated or answer.truncated

    def go_on(self, between: list[int], most: int) -> None:
        """Adds the tokens up to the next turn, or ends where a whole turn would not fit."""
        if len(self.tokens) + len(between) > most:
            self.finish = "length"
            return
        self.tokens += between
        self.logprobs += [0.0] * len(between)
        self.sampled += [False] * len(between)

    def fail(self, reason: str) -> None:
        """Ends the rollout as a failure."""
        reason = " ".join(reason.split())
        self.finish = "error"
        self.info = {"failure": reason if len(reason) <= LONGEST_FAILURE else reason[: LONGEST_FAILURE - 3] + "..."}

    def completion(self) -> Completion:
        """Returns what rewards see of the finished rollout."""
        assert self.finish is not None
        return Completion(
            text=self.text,
            messages=tuple(self.messages),
            prompt=self.episode.prompt,
            row=self.episode.row,
            token_ids=tuple(token for token, _ in self.chosen),
            logprobs=tuple(logprob for _, logprob in self.chosen),
            finish_reason=self.finish,
            turns=self.turns,
            info={**self.info, "rewards": list(self.rewards)},
        )

    def trajectory(self, end: int) -> Trajectory:
        """Returns the finished rollout; one that failed before its first turn is a single token that nobody chose."""
        if not self.tokens:
            return Trajectory((end,), (0.0,), (False,), self.completion())
        return Trajectory(tuple(self.tokens), tuple(self.logprobs), tuple(self.sampled), self.completion())


def _start(episode: Episode, env: Any) -> None:
    """Starts an episode.

    Raises:
        ValueError: it does not start as it did when its prompt was made.
    """
    observation, info = env.reset(**dict(episode.reset))
    if prompt_of(observation, info) != episode.prompt:
        raise ValueError("reset with the same seed and options gave another prompt than before")


def _step(action: str, env: Any) -> _Answer:
    """Makes one step and checks what it returns.

    Raises:
        TypeError, ValueError: it is not what gymnasium's contract says.
    """
    observation, reward, terminated, truncated, info = env.step(action)
    if not isinstance(observation, str):
        raise TypeError(f"the observation is a {type(observation).__name__}, not text")
    number = float(reward)
    if not math.isfinite(number):
        raise ValueError(f"the reward is {number}")
    return _Answer(observation, number, bool(terminated), bool(truncated), _plain(info))


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries that JSON can hold; only those are recorded and reach rewards."""
    return {str(key): value for key, value in info.items() if _is_json(value)}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
