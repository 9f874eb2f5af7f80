"""Plays gold solutions like rollouts (core/env/worked.py), and judges them by rewards and verifier of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from grpo.core.env.episodes import START_SECONDS, Action, Episode
from grpo.core.env.processes import EnvProcesses, place_of_envs
from grpo.core.env.threads import Raised
from grpo.core.env.worked import Wanted, Worked, play_worked
from grpo.core.scoring.scorer import Judgement, Outcome, Scorer
from grpo.plugins._spec.binding import BoundEnv, BoundReward, BoundVerifier
from grpo.plugins.types import Completion, Message

_CLOSE = 1e-9
_LONGEST_READ = 60  # characters of what a verifier read


@dataclass(frozen=True, slots=True)
class JudgedGold:
    """What the rewards and the verifier of a run made of one gold solution."""

    outcomes: Mapping[str, Outcome]  # reward to its outcome
    silent: Mapping[str, Outcome]  # reward to its outcome for saying nothing
    judgement: Judgement | None  # the verifier's, or None without one
    silence_right: bool  # the verifier accepts saying nothing too, as where the right answer is an empty text
    # total, silence: the weighted sums of both, where an abstention and a failure count nothing
    total: float
    silence: float
    complaint: str | None  # why it is not accepted, or None
    failure: str | None  # why its environment failed at it, or None


def acted(
    env: BoundEnv, wanted: Sequence[Wanted], *, seconds: float = START_SECONDS, processes: EnvProcesses | None = None
) -> list[Completion | Raised]:
    """Returns what rewards see of rollouts with known actions, or why one could not be played."""
    if not env.spec.played:
        return [answered(episode, actions) for episode, actions in wanted]
    done = play_worked(partial(place_of_envs, env, processes, seconds), wanted)
    return [
        rollout.failed if rollout.failed is not None else completion_of(episode, rollout)
        for (episode, _), rollout in zip(wanted, done, strict=True)
    ]


def answered(episode: Episode, actions: Sequence[Action]) -> Completion:
    """Returns what rewards see of an episode that one text answers."""
    text = next((action for action in actions if isinstance(action, str)), "")
    return _completion(episode, text, [Message(role="assistant", content=text)], {})


def completion_of(episode: Episode, worked: Worked) -> Completion:
    """Returns what rewards see of an episode that was played with known actions."""
    messages: list[Message] = []
    rewards: list[float] = []
    ended: Mapping[str, Any] = {}
    text, calls = "", 0
    for turn in worked.turns:
        if isinstance(turn.action, str):
            if turn.answer is None:
                continue
            text = turn.action
            messages.append(Message(role="assistant", content=text))
        else:
            text, calls = "", calls + 1
            messages.append(Message(role="assistant", content=json.dumps(dict(turn.action), default=str)))
            messages.append(Message(role="tool", content=turn.tool_answer or ""))
        rewards.append(turn.answer.reward if turn.answer else 0.0)
        if turn.answer is not None:
            ended = turn.answer.final_info
            if isinstance(turn.action, str) and turn.answer.observation:
                messages.append(Message(role="user", content=turn.answer.observation))
    if worked.cut is not None:
        rewards[-1] += worked.cut.reward
        ended = worked.cut.final_info
    info = {**ended, "rewards": rewards} if rewards else {}
    return _completion(episode, text, messages, {**info, **({"tool_calls": calls} if worked.tools else {})})


def _completion(episode: Episode, text: str, messages: Sequence[Message], info: Mapping[str, Any]) -> Completion:
    return Completion(
        text=text,
        messages=tuple(messages),
        prompt=episode.prompt,
        row=episode.row,
        turns=sum(message["role"] == "assistant" for message in messages),
        info=info,
        env=episode.env,
    )


def judge_golds(
    scorer: Scorer,
    rewards: Sequence[BoundReward],
    verifier: BoundVerifier | None,
    worked: Sequence[Completion],
    silent: Sequence[Completion],
    rows: Sequence[int] | None = None,
) -> list[JudgedGold]:
    """Judges gold solutions beside silence in the same episodes; `rows` numbers them in messages."""
    outcomes, silence = scorer.score(worked, rows=rows), scorer.score(silent, rows=rows)
    nobody: list[Judgement | None] = [None] * len(worked)
    judged, unsaid = (
        scorer.judge(completions, rows=rows)[verifier.name] if verifier else nobody for completions in (worked, silent)
    )
    judged_golds = []
    for index, (judgement, other) in enumerate(zip(judged, unsaid, strict=True)):
        gold = {name: each[index] for name, each in outcomes.items()}
        nothing = {name: each[index] for name, each in silence.items()}
        right, paid = total(rewards, gold), total(rewards, nothing)
        empty = other is not None and other.verdict is not None and other.verdict.ok is True
        failure = worked[index].info.get("reason") if worked[index].finish_reason == "error" else None
        complaint = _verifiers(verifier, judgement) or _rewards(rewards, gold, right, paid, as_good=empty)
        judged_golds.append(JudgedGold(gold, nothing, judgement, empty, right, paid, complaint, failure))
    return judged_golds


def total(rewards: Sequence[BoundReward], outcomes: Mapping[str, Outcome]) -> float:
    """Returns the weighted sum of the scores; what abstains or fails counts nothing."""
    return sum(reward.weight * (outcomes[reward.name].score or 0.0) for reward in rewards)


def _verifiers(verifier: BoundVerifier | None, judgement: Judgement | None) -> str | None:
    if verifier is None or judgement is None:
        return None
    if judgement.verdict is None:
        return judgement.reason
    if judgement.verdict.ok is True:
        return None
    read = judgement.verdict.extracted
    verb = "cannot decide on" if judgement.verdict.ok is None else "rejects"
    what = "it" if read is None else repr(read if len(read) <= _LONGEST_READ else read[:_LONGEST_READ] + "...")
    return f"verifier '{verifier.name}' {verb} {what}: {judgement.verdict.reason or 'it gives no reason'}"


def _rewards(
    rewards: Sequence[BoundReward], gold: Mapping[str, Outcome], right: float, nothing: float, *, as_good: bool
) -> str | None:
    """Returns why the rewards pay no more for a gold solution than for silence, nor their best, or None."""
    for reward in rewards:
        if gold[reward.name].kind == "failure":
            return gold[reward.name].reason
    if not rewards:
        return None
    scored = [(reward, score) for reward in rewards if (score := gold[reward.name].score) is not None]
    if not scored:
        why = "; ".join(f"{name}: {outcome.reason}" for name, outcome in gold.items() if outcome.reason)
        return f"no reward scores it: all of them abstain{f' ({why})' if why else ''}"
    close = _CLOSE * max(1.0, abs(nothing))
    if right > nothing + close or (as_good and right > nothing - close):
        return None
    if all(best(reward, score) for reward, score in scored):
        return None
    scores = ", ".join(f"{reward.name} {score:g}" for reward, score in scored)
    return f"it is paid {right:g} ({scores}), and an empty completion {nothing:g}"


def best(reward: BoundReward, score: float) -> bool:
    """Returns whether a score is the best that a reward can give, by its range and the sign of its weight."""
    low, high = reward.spec.range
    return score >= high - _CLOSE if reward.weight >= 0 else score <= low + _CLOSE
