"""Scores and judges completions of several environments, each by its own rewards and verifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from grpo.core.env.mixture import RunEnv
from grpo.core.scoring.early import EarlyCalls
from grpo.core.scoring.outcome import Judgement, Outcome
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundVerifier
from grpo.plugins.types import Completion, Verdict

ELSEWHERE = Outcome("abstain", None, "it scores another environment")


def scores_by_env(
    scorer: Scorer,
    envs: Sequence[RunEnv],
    completions: Sequence[Completion],
    early: EarlyCalls | None = None,
    first_row: int = 0,
) -> dict[str, list[Outcome]]:
    """Scores each completion with the rewards of its environment: name to one outcome per completion, in order."""
    if len(envs) == 1:
        return scorer.score(completions, rows=range(first_row, first_row + len(completions)), early=early)
    by_name: dict[str, list[Outcome]] = {}
    for part, places in _places(envs, completions).items():
        names = [reward.name for reward in envs[part].rewards]
        rows = [first_row + place for place in places]
        own = scorer.score([completions[i] for i in places], rows=rows, only=names, early=early)
        for name, outcomes in own.items():
            by_name[name] = [ELSEWHERE] * len(completions)
            for place, outcome in zip(places, outcomes, strict=True):
                by_name[name][place] = outcome
    return by_name


def verdicts_by_env(
    scorer: Scorer,
    envs: Sequence[RunEnv],
    completions: Sequence[Completion],
    judged_by: Callable[[BoundVerifier, Sequence[Judgement]], None] = lambda verifier, judgements: None,
) -> list[Verdict]:
    """Judges each completion with the verifier of its environment; undecided too if that fails or there is none."""
    verdicts = [Verdict(None)] * len(completions)
    for part, places in _places(envs, completions).items():
        verifier = envs[part].verifier
        if verifier is None:
            continue
        judged = scorer.judge([completions[i] for i in places], rows=places, only=[verifier.name])[verifier.name]
        ended = [
            verdict
            for place, verdict in zip(places, judged, strict=True)
            if completions[place].finish_reason != "error"
        ]
        judged_by(verifier, ended)  # what the environment failed on is no fault of the verifier
        for place, judgement in zip(places, judged, strict=True):
            verdicts[place] = judgement.verdict or Verdict(None, reason=judgement.reason)
    return verdicts


def _places(envs: Sequence[RunEnv], completions: Sequence[Completion]) -> Mapping[int, list[int]]:
    if len(envs) == 1:
        return {0: list(range(len(completions)))}
    return {
        number: [place for place, completion in enumerate(completions) if completion.env == part.name]
        for number, part in enumerate(envs)
    }
