"""Makes the page of some runs within a size limit; the same runs give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.core.record.browse import to_completion
from grpo.core.record.list import list_runs
from grpo.core.record.run_dir import RunDir, open_run_dir, read_json, read_metrics, whole_file
from grpo.core.report.alarms import Alarm, AlarmWatch, is_steady
from grpo.core.report.blocks import PackedRollouts, pack_rollouts, packed_json
from grpo.core.report.keep import choose
from grpo.core.report.page import Named, page
from grpo.core.report.public import public_value, public_versions
from grpo.core.report.scan import Scan, recorded_steps
from grpo.core.report.summary import arithmetic_of, cases_of, rollouts_summary, summary_of
from grpo.core.report.tokens import RunTokenizer
from grpo.core.scoring.recorded_run import own_outcomes, rollouts_of
from grpo.core.scoring.rows import numbered
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.training import GroupScores

if TYPE_CHECKING:
    from grpo.core.check.diff import Advantage, Change, Difference

SAMPLE, BLOCKS = 2_000, 10  # rollouts that are packed to learn how well they pack, and in how many places they are
TRIES = 4
MARGIN = 0.97


@dataclass(frozen=True, slots=True)
class Written:
    path: Path  # the page
    size: int  # bytes
    # held, recorded: rollouts in the page, and in the runs
    held: int
    recorded: int


@dataclass(slots=True)
class _Read:
    summary: dict[str, Any]
    scan: Scan
    alarms: list[Alarm]
    tokenizer: RunTokenizer
    cases: dict[str, dict[str, Any]]
    changes: Sequence[Change] | None = None
    public: bool = False

    @property
    def missing(self) -> str | None:
        return public_value(self.tokenizer.missing) if self.public else self.tokenizer.missing

    def publish(self, settings: Mapping[str, Any]) -> None:
        """Removes what belongs to this machine, here and in the rollouts that are packed later."""
        self.public = True
        self.summary.update(
            {key: public_value(self.summary[key]) for key in ("env", "alarms", "weights")}
            | {
                "name": "run",
                "model": settings["model"] or "embedded",
                "config": settings,
                "versions": public_versions(self.summary["versions"]),
            }
        )
        self.cases.update(public_value(self.cases))


def write_report(
    paths: Sequence[Path], output: Path, *, limit: int, new: Sequence[str] = (), public: Mapping[str, Any] | None = None
) -> Written:
    """Writes the page of some runs. Raises UsageError for no run, a damaged file, or a page that cannot be written.

    `limit`: bytes, exceeded only where failures alone take more. `new`: SPECs of rewards to score everything with again
    and compare. `public`: the settings of a single run from `public_config`; then the page names no folder, address or
    secret of this machine around the rollouts.
    """
    host = Host.discover()
    runs = [_read(open_run_dir(path), name, host, new) for path, name in zip(paths, names_of(paths), strict=True)]
    if public is not None:
        [run] = runs
        run.publish(public)
    empty = _page(runs, [PackedRollouts(0, (), "", (), ()) for _ in runs])
    packed = _packed(runs, limit - sum(map(len, empty)))
    try:
        with whole_file(output) as unfinished, unfinished.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(_page(runs, packed))
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}. Name another file with --output.") from None
    held, recorded = sum(place.count for place in packed), sum(len(run.scan) for run in runs)
    return Written(output, output.stat().st_size, held, recorded)


def _read(run: RunDir, name: str, host: Host, new: Sequence[str]) -> _Read:
    [line] = list_runs(run.path)
    if line.problem is not None:
        raise UsageError(line.problem)
    config, versions, metrics = read_json(run.config), read_json(run.versions), read_metrics(run)
    scan, watch = Scan(run), AlarmWatch(arithmetic_of(config), metrics, is_steady(versions))
    for step, rows in recorded_steps(run):
        scan.add(step, rows)
        watch.rollouts(step, rows)
    alarms = watch.alarms(line)
    summary = summary_of(name, line, config, versions, metrics, alarms)
    changes = None
    if new:
        difference = compared(run, config, host, new)
        changes = difference.changes
        summary["difference"] = difference_summary(new, difference)
    return _Read(summary, scan, alarms, RunTokenizer(run), cases_of(versions), changes)


def _packed(runs: Sequence[_Read], room: float) -> list[PackedRollouts]:
    scans, alarmed = [run.scan for run in runs], [{alarm.step for alarm in run.alarms} for run in runs]
    size = sum(sum(scan.size) for scan in scans)
    ratio = 1.0 if size <= room else _ratio(runs)  # of a few rollouts all are tried at once
    if MARGIN * ratio * size <= room:
        everything = _everything(runs, room)
        if everything is not None:
            return everything
    for _ in range(TRIES):
        chosen = choose(scans, alarmed, room, ratio)
        packed = [_pack(run, places) for run, places in zip(runs, chosen, strict=True)]
        length = sum(block.length for block in packed)
        if length <= room:
            break
        ratio *= length / max(room, 1) / MARGIN
    return packed


def _everything(runs: Sequence[_Read], room: float) -> list[PackedRollouts] | None:
    packed: list[PackedRollouts] = []
    for run in runs:
        rollouts = pack_rollouts(
            run.scan,
            range(len(run.scan)),
            run.tokenizer,
            tokens=True,
            changes=run.changes,
            public=run.public,
            room=room - sum(rollouts.length for rollouts in packed),
        )
        if rollouts is None:
            return None
        packed.append(rollouts)
    return packed


def _pack(run: _Read, places: Sequence[int]) -> PackedRollouts:
    packed = pack_rollouts(run.scan, places, run.tokenizer, tokens=False, changes=run.changes, public=run.public)
    assert packed is not None  # without a limit
    return packed


def _ratio(runs: Sequence[_Read]) -> float:
    """Estimates how many characters of the page one of a text takes."""
    length = size = 0
    for run in runs:
        total, blocks = len(run.scan), max(1, BLOCKS // len(runs))  # neighbours, which are in few files
        starts = range(0, total, max(SAMPLE // BLOCKS, total // blocks))
        places = [place for start in starts for place in range(start, min(start + SAMPLE // BLOCKS, total))]
        length += _pack(run, places).length
        size += sum(run.scan.size[place] for place in places)
    return length / max(size, 1)


def _page(runs: Sequence[_Read], chosen: Sequence[PackedRollouts]) -> Iterator[str]:
    summaries = [
        {**run.summary, **rollouts_summary(run.scan, packed, run.cases, run.missing)}
        for run, packed in zip(runs, chosen, strict=True)
    ]
    blocks: list[Named] = []
    for number, packed in enumerate(chosen):
        blocks.append((f"run{number}-index", packed.index))
    for number, packed in enumerate(chosen):
        blocks += [(f"run{number}-texts{place}", text) for place, text in enumerate(packed.texts)]
    return page(packed_json({"runs": summaries}), blocks)


def names_of(paths: Sequence[Path]) -> list[str]:
    """Returns the names of runs: those of the folders, with as much of the path before them as tells them apart."""
    parts = [path.resolve().parts for path in paths]
    names = [own[-1] for own in parts]
    for depth in range(2, max(map(len, parts)) + 1):
        names = [
            "/".join(own[-depth:]) if names.count(name) > 1 else name for name, own in zip(names, parts, strict=True)
        ]
    return names


def compared(run: RunDir, config: Mapping[str, Any], host: Host, new: Sequence[str]) -> Difference:
    """Scores everything that a run recorded with other rewards, and compares with its own."""
    from grpo.core.check.diff import compare  # loads torch

    rewards, advantage = host.rewards(new), _advantage_of(run, config, host)
    rollouts = list(rollouts_of(run.path))
    groups = [f"{step} {rollout.group}" for step, rollout in rollouts]
    outcomes, weights = own_outcomes(run.path, [rollout for _, rollout in rollouts])
    with Scorer(rewards) as scorer:
        scored = scorer.score(numbered(groups, [to_completion(rollout) for _, rollout in rollouts]))
    chosen = {reward.name: scored[reward.name] for reward in rewards}
    return compare(groups, outcomes, chosen, weights, {reward.name: reward.weight for reward in rewards}, advantage)


def _advantage_of(run: RunDir, config: Mapping[str, Any], host: Host) -> Advantage:
    loss = config.get("loss")
    if not isinstance(loss, Mapping) or "advantage" not in loss:
        raise UsageError(f"{run.config} was damaged: it does not say which advantage the run had.")
    bound = host.advantage(loss["advantage"])
    if not bound.spec.turns:
        return bound

    def of_the_whole(scores: GroupScores) -> Any:
        advantages = bound(replace(scores, turns=scores.totals[:, :, None]))
        return advantages[:, :, 0] if advantages.ndim == 3 else advantages

    return of_the_whole


def difference_summary(new: Sequence[str], difference: Difference) -> dict[str, Any]:
    """Returns the page's summary of the difference as a whole."""
    return {
        "rewards": list(new),
        "means": [difference.mean_old, difference.mean_new],
        "unscored": [difference.unscored_old, difference.unscored_new],
        "groups": difference.groups,
        "lost_signal": list(difference.lost_signal),
        "gained_signal": list(difference.gained_signal),
        "flips": len(difference.flips),
        "shift": difference.mean_shift,
    }
