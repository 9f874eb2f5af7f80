"""Plays known actions (gold solutions, demonstrations) in a run's environments, within the limits of its rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grpo.core.env.env_batch import EnvBatch
from grpo.core.env.episodes import Action, Episode
from grpo.core.env.step import StepAnswer, cut_off, take_step, tell_of_calls
from grpo.core.env.threads import AT_ONCE, Call, Raised
from grpo.core.env.tools import ToolCall, checked, error_answer
from grpo.core.scoring.outcome import explain
from grpo.plugins.errors import GrpoError

Wanted = tuple[Episode, Sequence[Action]]  # an episode, and the actions to play in it


@dataclass(frozen=True, slots=True)
class WorkedTurn:
    """One action and its result."""

    action: Action  # what the policy would say, or a call of a tool
    tool_answer: str | None  # what the tool answered; None for an action that is no call
    answer: StepAnswer | None  # what the environment answered; None where the call of a tool went on with the episode


@dataclass(slots=True)
class Worked:
    """An episode that was played with known actions."""

    tools: bool = False  # the environment offers tools
    # the actions that were played: fewer than were given where the episode ended
    turns: list[WorkedTurn] = field(default_factory=list)
    cut: StepAnswer | None = None  # what the environment said when the actions were over and the episode was not
    failed: Raised | None = None  # why it could not be played on

    @property
    def ended(self) -> bool:
        last = self.turns[-1].answer if self.turns else None
        return self.failed is not None or (last is not None and (last.ended or self.turns[-1].tool_answer is not None))


def play_worked(opened: Callable[[], EnvBatch], wanted: Sequence[Wanted], *, cuts: bool = True) -> list[Worked]:
    """Plays episodes with known actions; `cuts` asks for the outcome of an episode that they did not end."""
    done: list[Worked] = []
    for first in range(0, len(wanted), AT_ONCE):
        done += _block(opened, wanted[first : first + AT_ONCE], cuts)
    return done


def _block(opened: Callable[[], EnvBatch], wanted: Sequence[Wanted], cuts: bool) -> list[Worked]:
    with opened() as envs:
        done = _side_by_side(envs, wanted, cuts)
    lost = [number for number, played in enumerate(done) if played.failed is not None and played.failed.shared]
    if len(wanted) > 1:  # alone, each pays for itself; a process that survives is used again
        for number in lost:
            (done[number],) = _block(opened, [wanted[number]], cuts)
    return done


def _side_by_side(envs: EnvBatch, wanted: Sequence[Wanted], cuts: bool) -> list[Worked]:
    done = [Worked() for _ in wanted]
    for number, started in envs.start({number: episode for number, (episode, _) in enumerate(wanted)}).items():
        if isinstance(started, Raised):
            done[number].failed = started
        else:
            done[number].tools = started
    for turn in range(max((len(actions) for _, actions in wanted), default=0)):
        going = {n: actions[turn] for n, (_, actions) in enumerate(wanted) if turn < len(actions) and not done[n].ended}
        play_turn(envs, {n: (wanted[n][0], action, done[n]) for n, action in going.items()})
    if cuts:
        ends: dict[int, Call] = {
            number: partial(cut_off, played.turns[-1].tool_answer is not None)
            for number, played in enumerate(done)
            if played.turns and not played.ended
        }
        for number, answer in envs.call(ends).items():
            if isinstance(answer, Raised):
                done[number].failed = answer
            else:
                done[number].cut = answer
    return done


def play_turn(envs: EnvBatch, turns: Mapping[int, tuple[Episode, Action, Worked]]) -> None:
    """Plays one action in each of some episodes, by the number of its environment, and adds what came of it."""
    asked = {
        n: checked(ToolCall(action["tool"], action["arguments"]), episode.tools)
        for n, (episode, action, _) in turns.items()
        if not isinstance(action, str)
    }
    observations: dict[int, str] = {}
    for number, answer in envs.use(asked).items():
        if not isinstance(answer, Raised):
            observations[number] = answer
        elif isinstance(answer.error, GrpoError) or answer.shared:
            turns[number][2].failed = answer
        else:
            observations[number] = error_answer(explain(answer.error))
    calls: dict[int, Call] = {
        n: partial(take_step, action) for n, (_, action, _) in turns.items() if isinstance(action, str)
    }
    calls |= {number: partial(tell_of_calls, "", [asked[number]], [text]) for number, text in observations.items()}
    answers: Mapping[int, Any] = envs.call(calls)
    for number, answer in answers.items():
        _, action, worked = turns[number]
        if isinstance(answer, Raised):
            worked.failed = answer
        else:
            worked.turns.append(WorkedTurn(action, observations.get(number), answer))
