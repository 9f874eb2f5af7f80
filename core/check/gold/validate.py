"""Validates rows by their gold solutions: a row that refuses its own can never be solved."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice

from grpo.core.check.gold.report import GoldScores, RefusedRow, Validation, WeakRow
from grpo.core.check.gold.solutions import JudgedGold, acted, best, judge_golds
from grpo.core.check.report import title_of
from grpo.core.check.trial import Fault, as_sampled, faults_of, texts_for
from grpo.core.env.episodes import UNBOUNDED, Episode, episodes_of, sample_of
from grpo.core.env.mixture import nothing_judges, refuse_missing_columns
from grpo.core.env.processes import EnvProcesses, starting_place, trial_processes
from grpo.core.env.step import weaknesses_of
from grpo.core.env.threads import Raised
from grpo.core.env.worked import Wanted
from grpo.core.plan import Plan
from grpo.core.scoring.outcome import explain
from grpo.core.scoring.scorer import Scorer
from grpo.core.scoring.tally import verdict_counts
from grpo.core.text.stats import mean_or_none
from grpo.plugins._host.loading import GIVEN
from grpo.plugins._spec.binding import BoundEnv, BoundReward, BoundVerifier
from grpo.plugins.errors import SandboxUnavailable, UsageError
from grpo.plugins.host import Host, bound_of
from grpo.plugins.rubric import parts
from grpo.plugins.specs import EnvSpec
from grpo.plugins.types import Completion

__all__ = ["validate"]

Play = Callable[[Sequence[Wanted]], list[Completion]]
_BLOCK = 256  # rows that are played and judged at a time
_TRIED = 8  # gold solutions of each environment before a run trains
_ANSWERED = 2  # episodes of each environment that rewards are called on before a run trains
_UNFIT = "gives no gold solution more than an empty completion: it does not fit this layout or these rows"


def validate(
    env: str | EnvSpec | BoundEnv,
    *,
    split: str = "train",
    size: int | None = None,
    rewards: Sequence[str] = (),
    seconds: float = 60.0,
    env_processes: int = 0,
    on_rows: Callable[[int, int], None] = lambda done, rows: None,
) -> Validation:
    """Plays the gold solution of every row and judges it by the environment's verifier and the rewards of the run.

    The gold solution is the row's demonstration, or else its gold answer in the environment's layout. It is accepted
    when the verifier says that it is right, and the rewards pay more for it than for saying nothing (or each the best
    that it can). A row for which the verifier accepts one of its generic cheats (`VerifierSpec.cheats`) is weak.

    Args:
        env: a SPEC ("countdown:size=500"), an `EnvSpec`, or a bound environment.
        split: "train" or "test".
        size: only so many of the first rows; default: all, or 200 episodes of an environment that makes its own.
        rewards: the SPECs of the run; default: the environment's own.
        seconds: for starting an episode, and for one call of an environment that is stepped.
        env_processes: processes that step it; 0: one, or threads where it exists in this process alone.
        on_rows: told after each block how many rows are done, and how many there are.

    Raises UsageError if the environment, a reward or the rows cannot be used, or there is nothing to judge with;
    PluginError if the environment cannot start an episode; SandboxUnavailable if this machine cannot run programs.
    """
    host = Host.discover()
    bound = bound_of(host.env(env) if isinstance(env, str) else env, BoundEnv).settled()
    chosen = host.rewards(rewards) if rewards else host.default_rewards(bound)
    verifier = host.default_verifier(bound)
    plugins: list[BoundReward | BoundVerifier] = [*chosen, *([verifier] if verifier else [])]
    if not plugins:
        raise nothing_judges(bound)
    if size is not None and size < 1:
        raise UsageError(f"size={size} must be 1 or more.")
    place = starting_place(bound, env_processes, seconds)
    episodes = episodes_of(bound, split, limit=size, unbounded=UNBOUNDED, describe_tools=False, opened=place)
    refuse_missing_columns(episodes[0], plugins)
    solved: list[Episode] = []
    unsolved: list[Episode] = []
    for episode in episodes:
        (solved if episode.gold_actions else unsolved).append(episode)
    judged: list[JudgedGold] = []
    refused: list[RefusedRow] = []
    weak: list[WeakRow] = []
    play = _player(bound, seconds, env_processes)
    with Scorer(plugins) as scorer:
        for first in range(0, len(solved), _BLOCK):
            block = solved[first : first + _BLOCK]
            judged_block = _judged(scorer, chosen, verifier, block, play)
            judged += judged_block
            weak += _weak(scorer, bound, verifier, block, play)
            refused += _refused(bound, block, judged_block, {row.index for row in weak})
            on_rows(len(judged), len(solved))
    if bound.spec.played:
        weak += _weak_tasks(bound, unsolved)
    return Validation(
        env=title_of(bound).removeprefix("env "),
        split=split,
        rows=len(episodes),
        without=tuple(episode.place for episode in unsolved),
        refused=tuple(refused),
        rewards=tuple(_scores(part.name, judged) for reward in chosen for part in parts(reward)),
        verifier=verifier.name if verifier else None,
        verdicts=verdict_counts(gold.judgement for gold in judged if gold.judgement is not None) if verifier else {},
        silence_right=sum(gold.silence_right for gold in judged),
        notes=tuple(_notes(bound, chosen, solved, judged)),
        weak=tuple(weak),
    )


def doubts(plan: Plan) -> Iterator[str]:
    """Yields warnings before a run trains: useless rewards, refused golds. Raises UsageError, SandboxUnavailable."""
    stops = plan.config.failures.stop_share < 1
    for part in plan.envs:
        solved = list(islice((episode for episode in sample_of(part.train) if episode.gold_actions), _TRIED))
        play = _player(part.env, plan.config.rollout.step_timeout, plan.config.rollout.env_processes)
        shown = _answered(list(islice(part.train, _ANSWERED)), play)
        with Scorer(part.plugins) as scorer:
            called = [(plugin, faults_of(plugin, scorer, shown)) for plugin in part.plugins]
            hopeless = any(fault.kind == "every call" for _, faults in called for fault in faults)
            judged = []
            if solved and not (hopeless and stops):  # the run is refused, and it may have taken long
                judged = _judged(scorer, part.rewards, part.verifier, solved, play)
        failures = [gold.failure for gold in judged if gold.failure is not None]
        if judged and len(failures) == len(judged) and stops:
            tried = f"all {len(judged)} gold solutions" if len(judged) > 1 else "the one gold solution"
            raise UsageError(
                f"env '{part.name}' failed at {tried} that {'were' if len(judged) > 1 else 'was'} tried: "
                f"{failures[0].rstrip('.')}. Fix the environment; `grpo plugins check` tries it alone."
            )
        faulty: set[tuple[str, str]] = set()
        for plugin, faults in called:
            if part.env.spec.max_turns > 1 and not solved and plugin.name == "environment":
                # No text that was shown is known to be a move, so that it pays all of them alike says nothing.
                faults = [fault for fault in faults if fault.kind != "one value"]
            for fault in faults:
                faulty.add((plugin.spec.kind, plugin.name))
                message = f"{plugin.spec.kind} '{plugin.name}': {fault.message.rstrip('.')}."
                alone = (
                    f"grpo.check_{plugin.spec.kind}({plugin.name})"
                    if plugin.distribution == GIVEN
                    else "grpo plugins check"
                )
                message += f" `{alone}` tries it alone." if fault.severity == "error" else ""
                if _hopeless(plugin, fault, judged) and stops:
                    raise UsageError(message)
                yield message
        refused = list(_refused(part.env, solved, judged))
        if refused:
            yield (
                f"env '{part.name}': the verifier and the rewards of this run do not accept {len(refused)} of "
                f"{len(solved)} gold solutions that were tried. {refused[0].place}: {refused[0].reason.rstrip('.')}. "
                "`grpo plugins validate` with the same environment and --reward tries every row."
            )
        for reward in part.rewards:
            if ("reward", reward.name) in faulty:
                continue
            if why := _fails_on_silence(reward, judged):
                yield f"env '{part.name}': {why}"
            if _unmoved(reward, judged):
                yield f"env '{part.name}': {reward.name} {_UNFIT}"


def answered(env: BoundEnv, episodes: Sequence[Episode], seconds: float) -> list[Completion]:
    """Returns what rewards see of answers that no model wrote, gold solutions among them; a group for each episode.

    Raises SandboxUnavailable if this machine cannot run programs.
    """
    return _answered(episodes, _player(env, seconds, 0))


def _answered(episodes: Sequence[Episode], play: Play) -> list[Completion]:
    wanted = [
        (number, episode, actions)
        for number, episode in enumerate(episodes)
        for actions in filter(len, (episode.gold_actions, *((text,) for text in texts_for(episode.row))))
    ]
    played = play([(episode, actions) for _, episode, actions in wanted])
    return [
        as_sampled(replace(completion, group=number)) for (number, _, _), completion in zip(wanted, played, strict=True)
    ]


def _hopeless(plugin: BoundReward | BoundVerifier, fault: Fault, judged: Sequence[JudgedGold]) -> bool:
    if fault.kind == "every call":
        return True
    results = [gold.outcomes[plugin.name] if isinstance(plugin, BoundReward) else gold.judgement for gold in judged]
    return (
        fault.kind == "some calls"
        and bool(results)
        and all(result is None or result.kind == "failure" for result in results)
    )


def _player(env: BoundEnv, seconds: float, env_processes: int) -> Play:
    """Returns what plays episodes of an environment; `env_processes`: those of an environment that is stepped."""
    return partial(_acted, env, seconds, trial_processes(env, env_processes) if env.spec.played else None)


def _judged(
    scorer: Scorer,
    rewards: Sequence[BoundReward],
    verifier: BoundVerifier | None,
    episodes: Sequence[Episode],
    play: Play,
) -> list[JudgedGold]:
    worked = play([(episode, episode.gold_actions) for episode in episodes])
    silent = play([(episode, ("",) * len(episode.gold_actions)) for episode in episodes])
    return judge_golds(scorer, rewards, verifier, worked, silent, [episode.index for episode in episodes])


def _acted(env: BoundEnv, seconds: float, processes: EnvProcesses | None, wanted: Sequence[Wanted]) -> list[Completion]:
    """Plays episodes with known actions; one that raises or hangs is a failed rollout. Raises SandboxUnavailable."""
    completions = []
    played = acted(env, wanted, seconds=env.call_limit(seconds), processes=processes)
    for (episode, _), rollout in zip(wanted, played, strict=True):
        if isinstance(rollout, Raised):
            if isinstance(rollout.error, SandboxUnavailable):
                raise rollout.error
            why = explain(rollout.error)
            info = {"failure": f"env '{env.name}' failed at it: {why}", "reason": why}
            rollout = Completion("", row=episode.row, finish_reason="error", info=info, env=episode.env)
        completions.append(rollout)
    return completions


def _refused(
    env: BoundEnv, block: Sequence[Episode], golds: Sequence[JudgedGold], weak: Container[int] = ()
) -> Iterator[RefusedRow]:
    """Yields the rows whose solution is not accepted, except weak ones that the rewards only leave out."""
    most = env.spec.max_turns
    for episode, gold in zip(block, golds, strict=True):
        turns = len(episode.gold_actions)
        reason = gold.complaint
        if env.spec.played and turns > most:
            reason = f"it takes {turns} turns, and env '{env.name}' allows {most}"
        if reason is not None and not (episode.index in weak and _left_out(gold)):
            actions = (
                action if isinstance(action, str) else json.dumps(dict(action), default=str, ensure_ascii=False)
                for action in episode.gold_actions
            )
            yield RefusedRow(episode.index, episode.place, reason, "\n".join(actions))


def _left_out(judged: JudgedGold) -> bool:
    verdict = None if judged.judgement is None else judged.judgement.verdict
    abstained = all(outcome.kind == "abstain" for outcome in judged.outcomes.values())
    return abstained and verdict is not None and verdict.ok is True


def _weak(
    scorer: Scorer, env: BoundEnv, verifier: BoundVerifier | None, block: Sequence[Episode], play: Play
) -> Iterator[WeakRow]:
    """Yields the rows for which the verifier accepts one of its generic cheats, and tasks that pay a hostile agent."""
    if env.spec.played:
        yield from _weak_tasks(env, block)
        return
    if verifier is None or verifier.spec.cheats is None:
        return
    cheats = [(episode, verifier.spec.cheats(episode.row)) for episode in block]
    wanted = [(episode, (text,)) for episode, texts in cheats for text in texts.values()]
    rows = [episode.index for episode, _ in wanted]
    judged = iter(scorer.judge(play(wanted), rows=rows)[verifier.name])
    for episode, texts in cheats:
        verdicts = [(what, next(judged).verdict) for what in texts]
        accepted = tuple(what for what, verdict in verdicts if verdict is not None and verdict.ok is True)
        if accepted:
            yield WeakRow(episode.index, episode.place, accepted)


def _weak_tasks(env: BoundEnv, block: Sequence[Episode]) -> Iterator[WeakRow]:
    with closing(env.make()) as instance:
        if weaknesses := weaknesses_of(instance):
            for episode in block:
                if paid := weaknesses(episode.row):
                    yield WeakRow(episode.index, episode.place, tuple(paid))


def _scores(reward: str, judged: Sequence[JudgedGold]) -> GoldScores:
    outcomes = [gold.outcomes[reward] for gold in judged]
    scores = [outcome.score for outcome in outcomes if outcome.score is not None]
    silence = [score for gold in judged if (score := gold.silent[reward].score) is not None]
    return GoldScores(
        reward=reward,
        mean=mean_or_none(scores),
        lowest=min(scores, default=None),
        silence=mean_or_none(silence),
        abstained=sum(outcome.kind == "abstain" for outcome in outcomes),
        failed=sum(outcome.kind == "failure" for outcome in outcomes),
    )


def _notes(
    env: BoundEnv, rewards: Sequence[BoundReward], solved: Sequence[Episode], judged: Sequence[JudgedGold]
) -> Iterator[str]:
    if env.spec.note:
        yield env.spec.note
    for reward in rewards:
        if why := _fails_on_silence(reward, judged):
            yield why
        if _unmoved(reward, judged):
            yield f"{reward.name} {_UNFIT}"
            continue
        accepted = [
            (score, episode.place)
            for episode, gold in zip(solved, judged, strict=True)
            if gold.complaint is None and (score := gold.outcomes[reward.name].score) is not None
        ]
        (least, place), (most, _) = min(accepted, default=(0.0, "")), max(accepted, default=(0.0, ""))
        if least < most:
            yield f"{place}: {reward.name} gives its solution {least:g}, and others up to {most:g}"


def _fails_on_silence(reward: BoundReward, judged: Sequence[JudgedGold]) -> str | None:
    """Returns why a reward that scores a gold solution fails on saying nothing to the same row, or None."""
    for gold in judged:
        nothing = gold.silent[reward.name]
        if nothing.kind == "failure" and gold.outcomes[reward.name].kind != "failure":
            return f"{reward.name} fails on an empty completion, which a policy may write: {nothing.reason}"
    return None


def _unmoved(reward: BoundReward, judged: Sequence[JudgedGold]) -> bool:
    """Returns whether a reward gives every gold solution what it gives silence, and that is not its best."""
    pairs = [(gold.outcomes[reward.name].score, gold.silent[reward.name].score) for gold in judged]
    both = [(right, nothing) for right, nothing in pairs if right is not None and nothing is not None]
    return bool(both) and all(right == nothing and not best(reward, right) for right, nothing in both)
