"""Plays multi-turn rollouts: turns episodes into token sequences, of which some are sampled and some observed.

Theory of operation. All rollouts of a batch advance together: one generation for those still alive, then one step of
each environment, side by side (core/env/env_batch.py), until the environment ends the episode or a budget is used up.
The tokens of a rollout only grow: the prompt, what was sampled, the tokens between (core/rollout/turns/chat.py), and so
on. Nothing is tokenised twice, so training computes log-probabilities in the context of the sampling. The last
observation is only recorded. An environment that raises, hangs or breaks the contract fails only its own rollout.

A turn that calls tools (core/rollout/turns/tools.py) is answered by them and steps the environment only where that says
that its episode has ended with them. Calls run in threads beside those of the environments, one at a time for a
rollout; one over the time limit is left and answered with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from grpo.core.env.env_batch import EnvBatch
from grpo.core.env.episodes import Episode
from grpo.core.env.processes import EnvProcesses, place_of_envs
from grpo.core.env.step import StepAnswer, cut_off, take_step, tell_of_calls
from grpo.core.env.threads import Call, Raised
from grpo.core.env.tools import ToolCall, error_answer
from grpo.core.policy.chat_template import texts_of
from grpo.core.rollout.turns.chat import TurnFormat
from grpo.core.rollout.turns.tools import ToolFormat
from grpo.core.rollout.types import PromptIds, Sampled, SamplingParams
from grpo.core.scoring.outcome import explain
from grpo.core.text.printable import shortened
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import GrpoError
from grpo.plugins.types import Completion, FinishReason, Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Sample = Callable[[PromptIds, SamplingParams], Sequence[Sampled]]
LONGEST_FAILURE = 500  # characters


@dataclass(frozen=True, slots=True)
class TurnLimits:
    turns: int
    tokens: int  # after the prompt, sampled and observed ones; a turn begins only where a whole one fits
    seconds: float  # for one call of an environment


@dataclass(frozen=True, slots=True)
class Branch:
    """A row of a rollout that is a tree: what was asked from the root to a leaf."""

    prompt: tuple[int, ...]  # token ids before the first token that trains in this row
    # token_ids, logprobs, sampled: as of a `Trajectory`; a token that trains in an earlier row is part of the prompt or
    # not `sampled` here
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampled: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout, without its prompt."""

    token_ids: tuple[int, ...]  # sampled tokens and, between turns, those of the template and the observation
    logprobs: tuple[float, ...]  # of each token as it was sampled, in nats; 0.0 where it was not
    sampled: tuple[bool, ...]  # which tokens the policy chose
    completion: Completion  # what rewards see of it
    # (step, tokens): how many of the sampled tokens the policy of which optimizer step sampled, in order; empty: all
    # are from one
    sampled_by: tuple[tuple[int, int], ...] = ()
    # the rows of a rollout that is a tree, at least one, in the order in which `token_ids` (and the tokens of the
    # completion) has theirs one after the other; empty: it is one row, after its episode's prompt
    branches: tuple[Branch, ...] = ()


class Plays(Protocol):
    """Plays rollouts."""

    def play(
        self,
        episodes: Sequence[Episode],
        prompts: PromptIds,
        sample: Sample,
        params: SamplingParams,
        *,
        on_ended: Callable[[int, Completion], None] | None = None,
    ) -> list[Trajectory]:
        """Plays one rollout of each episode; see `Player.play`."""


@dataclass(frozen=True, slots=True)
class Player:
    """Plays rollouts of one environment."""

    env: BoundEnv  # makes a fresh environment for each rollout
    tokenizer: PreTrainedTokenizerBase
    form: TurnFormat
    limits: TurnLimits
    tools: ToolFormat | None = None  # how the policy calls the environment's tools; None where it offers none
    processes: EnvProcesses | None = None  # where environments are stepped; None: in threads of this process

    def play(
        self,
        episodes: Sequence[Episode],
        prompts: PromptIds,
        sample: Sample,
        params: SamplingParams,
        *,
        on_ended: Callable[[int, Completion], None] | None = None,
    ) -> list[Trajectory]:
        """Plays one rollout of each episode; members of a group repeat theirs.

        `prompts`: their tokens. `sample`: token ids in, one completion each out. `params`: `max_tokens` is for one
        turn. `on_ended`: told the number of a rollout when it ends, and what rewards see of it.
        """
        rollouts = [PlayedRollout(*given) for given in zip(range(len(episodes)), episodes, prompts, strict=True)]
        with self.envs() as envs:
            self.start(rollouts, envs)
            for turn in range(1, self.limits.turns + 1):
                alive = [rollout for rollout in rollouts if rollout.finish is None]
                if not alive:
                    break
                self.turn(alive, sample, params.of([rollout.number for rollout in alive], turn), envs)
                for rollout in alive:
                    if rollout.finish is not None and on_ended is not None:
                        on_ended(rollout.number, rollout.completion())
        return [rollout.trajectory(self.tokenizer.eos_token_id) for rollout in rollouts]

    def envs(self) -> EnvBatch:
        """Returns where environments of some rollouts are; use it as a context manager."""
        return place_of_envs(self.env, self.processes, self.limits.seconds)

    def start(self, rollouts: Sequence[PlayedRollout], envs: EnvBatch) -> None:
        """Starts the episodes of rollouts; one that cannot start has ended as a failure."""
        started = envs.start({rollout.number: rollout.episode for rollout in rollouts})
        for rollout in rollouts:
            result = started[rollout.number]
            if isinstance(result, Raised):
                rollout.fail(f"env '{self.env.name}' could not start: {result.explained()}")
            else:
                rollout.tools = result

    def turn(self, alive: Sequence[PlayedRollout], sample: Sample, params: SamplingParams, envs: EnvBatch) -> None:
        """Plays one turn of rollouts that have not ended, and releases the environments of those that end with it."""
        self._speak(alive, sample, params)
        callers = self._called(alive, envs)
        self._report_calls([rollout for rollout in alive if rollout.number in callers], callers, envs)
        self._step([rollout for rollout in alive if rollout.number not in callers], envs)
        going = [rollout for rollout in alive if rollout.finish is None]
        for rollout in going:
            self._go_on(rollout, callers.get(rollout.number), self.limits.tokens - params.max_tokens)
        cut = {
            rollout.number: partial(cut_off, rollout.number in callers)
            for rollout in going
            if rollout.finish is not None
        }
        self._closed(going, cut, envs)
        for rollout in alive:
            if rollout.finish is not None:
                envs.release(rollout.number)

    def _speak(self, alive: Sequence[PlayedRollout], sample: Sample, params: SamplingParams) -> None:
        done = sample([[*rollout.prompt, *rollout.tokens] for rollout in alive], params)
        texts = texts_of(self.tokenizer, [sampled.token_ids for sampled in done])
        for rollout, sampled, text in zip(alive, done, texts, strict=True):
            rollout.add_turn(sampled, text)

    def _called(self, alive: Sequence[PlayedRollout], envs: EnvBatch) -> dict[int, list[ToolCall]]:
        if self.tools is None:
            return {}
        callers: dict[int, list[ToolCall]] = {}
        for rollout in alive:
            if calls := self.tools.calls(self.tokenizer, rollout.last):
                callers[rollout.number] = calls
                rollout.answers = []
        busy = {rollout.number: rollout for rollout in alive if rollout.number in callers}
        for which in range(max(map(len, callers.values()), default=0)):
            asked = {n: caller for n, caller in busy.items() if which < len(callers[n]) and caller.finish is None}
            answers = envs.use({n: callers[n][which] for n in asked})
            for number, rollout in asked.items():
                result = answers[number]
                if not isinstance(result, Raised):
                    rollout.answers.append(result)
                elif isinstance(result.error, GrpoError):
                    name = callers[number][which].name
                    reason = explain(result.error)
                    rollout.fail(f"tool '{name}' of env '{self.env.name}' failed in turn {rollout.turns}: {reason}")
                else:
                    rollout.answers.append(error_answer(explain(result.error)))
        for rollout in busy.values():
            rollout.use()
        return callers

    def _step(self, acting: Sequence[PlayedRollout], envs: EnvBatch) -> None:
        answers = envs.call({rollout.number: partial(take_step, rollout.text) for rollout in acting})
        for rollout in acting:
            result = answers[rollout.number]
            if isinstance(result, Raised):
                rollout.fail(f"env '{self.env.name}' failed in turn {rollout.turns}: {result.explained()}")
            elif rollout.see(result):
                rollout.finish = "stop"

    def _report_calls(
        self, using: Sequence[PlayedRollout], callers: Mapping[int, list[ToolCall]], envs: EnvBatch
    ) -> None:
        """Tells environments what their tools were used for; some say that the episode has ended with it."""
        asked: dict[int, Call] = {}
        for rollout in using:
            if rollout.finish is None and self.tools is not None:
                text = self.tools.read(self.tokenizer, rollout.last)[1]
                asked[rollout.number] = partial(tell_of_calls, text, callers[rollout.number], rollout.answers)
        for rollout in self._closed(using, asked, envs):
            rollout.finish = rollout.finish or "stop"

    def _closed(
        self, rollouts: Sequence[PlayedRollout], calls: Mapping[int, Call], envs: EnvBatch
    ) -> list[PlayedRollout]:
        """Makes calls that may end an episode without an action; returns the rollouts where one did."""
        answers = envs.call(calls)
        closed = [rollout for rollout in rollouts if answers.get(rollout.number) is not None]
        for rollout in closed:
            result = answers[rollout.number]
            if isinstance(result, Raised):
                rollout.fail(f"env '{self.env.name}' failed after turn {rollout.turns}: {result.explained()}")
            else:
                rollout.close(result)
        return closed

    def _go_on(self, rollout: PlayedRollout, calls: list[ToolCall] | None, most: int) -> None:
        if rollout.turns == self.limits.turns:
            rollout.finish = "length"
        elif calls is None:
            rollout.go_on(self.form.ids(self.tokenizer, rollout.observation, rollout.tokens[-1]), most)
        else:
            assert self.tools is not None
            rollout.go_on(self.tools.ids(self.tokenizer, calls, rollout.answers, rollout.tokens[-1]), most)


@dataclass(slots=True)
class PlayedRollout:
    """A rollout while it is played."""

    number: int
    episode: Episode
    prompt: Sequence[int]
    # tokens, logprobs, sampled: as of a `Trajectory`, so far
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    chosen: list[tuple[int, float]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    tools: bool = False
    answers: list[str] = field(default_factory=list)
    used: int = 0
    last: tuple[int, ...] = ()
    text: str = ""
    observation: str = ""
    turns: int = 0
    finish: FinishReason | None = None  # why it has ended, None while it has not

    def add_sampled(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Adds tokens that the policy chose."""
        self.tokens += token_ids
        self.logprobs += logprobs
        self.sampled += [True] * len(token_ids)
        self.chosen += zip(token_ids, logprobs, strict=True)

    def add_turn(self, sampled: Sampled, text: str) -> None:
        self.add_sampled(sampled.token_ids, sampled.logprobs)
        self.messages.append(Message(role="assistant", content=text))
        self.text, self.last = text, sampled.token_ids
        self.turns += 1

    def use(self) -> None:
        """Records the answers of tools; the turn has no reward of its own, and says nothing if it is the last."""
        self.rewards.append(0.0)
        self.messages += [Message(role="tool", content=answer) for answer in self.answers]
        self.text = ""
        self.used += len(self.answers)

    def see(self, answer: StepAnswer) -> bool:
        """Records the environment's answer; returns whether it ended the episode."""
        self.rewards.append(0.0)
        self.observation = answer.observation
        self.close(answer)
        if answer.observation:
            self.messages.append(Message(role="user", content=answer.observation))
        return answer.ended

    def close(self, answer: StepAnswer) -> None:
        """Notes what the environment said at the end of the turn."""
        self.rewards[-1] += answer.reward
        self.info = answer.final_info

    def go_on(self, between: list[int], most: int) -> None:
        """Adds the tokens up to the next turn, or ends where a whole turn would not fit."""
        if len(self.tokens) + len(between) > most:
            self.finish = "length"
            return
        self.tokens += between
        self.logprobs += [0.0] * len(between)
        self.sampled += [False] * len(between)

    def fail(self, reason: str) -> None:
        self.finish = "error"
        self.info = {"failure": shortened(" ".join(reason.split()), LONGEST_FAILURE)}

    def completion(self) -> Completion:
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
            info={**self.info, "rewards": list(self.rewards), **({"tool_calls": self.used} if self.tools else {})},
            env=self.episode.env,
            group=self.episode.group,
        )

    def trajectory(self, end: int) -> Trajectory:
        """Returns the finished rollout; one that failed before its first turn is a single token that nobody chose."""
        if not self.tokens:
            return Trajectory((end,), (0.0,), (False,), self.completion())
        return Trajectory(tuple(self.tokens), tuple(self.logprobs), tuple(self.sampled), self.completion())


def completed(episode: Episode, text: str, sampled: Sampled) -> Completion:
    """Makes the `Completion` that rewards see of one sampled answer to an episode."""
    return Completion(
        text=text,
        messages=(Message(role="assistant", content=text),),
        prompt=episode.prompt,
        row=episode.row,
        token_ids=sampled.token_ids,
        logprobs=sampled.logprobs,
        finish_reason=sampled.finish_reason,
        env=episode.env,
        group=episode.group,
    )
