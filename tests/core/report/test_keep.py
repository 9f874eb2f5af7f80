"""What a page leaves out where not all fits: never a failure, never an extreme, groups as a whole."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from made_run import failed, made_run

from grpo.core.record.run_dir import RunDir
from grpo.core.report.keep import choose
from grpo.core.report.scan import Scan, recorded_steps


def scan_of(run: RunDir) -> Scan:
    scan = Scan(run)
    for step, rows in recorded_steps(run):
        scan.add(step, rows)
    return scan


def test_everything_stays_where_there_is_room(tmp_path: Path) -> None:
    scan = scan_of(made_run(tmp_path / "run"))
    assert choose([scan], [set()], 1e9, 1.0) == [list(range(len(scan)))]


def test_failures_and_the_extremes_of_every_step_stay_without_any_room(tmp_path: Path) -> None:
    run = made_run(
        tmp_path / "run", steps=6, groups=20, change=lambda row, n: failed(row, "broke") if n in (7, 50) else row
    )
    scan = scan_of(run)
    [kept] = choose([scan], [set()], 0, 1.0)
    assert {place for place in range(len(scan)) if scan.failed[place]} <= set(kept)
    for step in range(1, 7):
        places = [place for place in range(len(scan)) if scan.step[place] == step]
        rewards = {scan.reward[place] for place in places if scan.reward[place] is not None}
        shown = [place for place in kept if scan.step[place] == step]
        assert {min(rewards), max(rewards)} <= {scan.reward[place] for place in shown}
        assert max(scan.tokens[place] for place in places) in {scan.tokens[place] for place in shown}
    assert len(kept) <= 6 * (2 + 3)


def test_what_is_a_sample_is_whole_groups_of_many_steps_and_the_same_every_time(tmp_path: Path) -> None:
    scan = scan_of(made_run(tmp_path / "run", steps=12, groups=10))
    room = 0.6 * sum(scan.size) + 24 * len(scan)
    [kept] = choose([scan], [set()], room, 1.0)
    assert [kept] == choose([scan], [set()], room, 1.0)
    assert 0.4 * len(scan) < len(kept) < 0.95 * len(scan)
    always = set(choose([scan], [set()], 0, 1.0)[0])
    sizes = {}
    for group, places in groupby(kept, key=lambda place: (scan.step[place], scan.group[place])):
        own = list(places)
        if not always & set(own):
            sizes[group] = len(own)
    assert set(sizes.values()) == {4}
    assert len({step for step, _ in sizes}) >= 10


def test_a_step_with_an_alarm_comes_before_the_sample(tmp_path: Path) -> None:
    scan = scan_of(made_run(tmp_path / "run", steps=12, groups=10))
    room = 0.55 * (sum(scan.size) + 24 * len(scan))
    [kept] = choose([scan], [{5}], room, 1.0)
    assert sum(scan.step[place] == 5 for place in kept) == 40


def test_several_runs_share_the_room(tmp_path: Path) -> None:
    small = scan_of(made_run(tmp_path / "small", steps=2, groups=2))
    large = scan_of(made_run(tmp_path / "large", steps=12, groups=10))
    room = 0.5 * (sum(large.size) + 24 * len(large))
    of_small, of_large = choose([small, large], [set(), set()], room, 1.0)
    assert len(of_small) == len(small), "its first and last step are all that it has"
    assert 0 < len(of_large) < len(large)
