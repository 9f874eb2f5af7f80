"""Canaries are read and refused before anything loads, and a reward that goes bad stops the run by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo import Case, Completion, Component, Verdict, reward, rubric, verifier
from grpo.core.display.progress import Silent
from grpo.core.run.canaries import CanaryWatch, Look, fingerprint
from grpo.core.scoring.known import Canary, canaries_of
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins.errors import DatasetError, RunError, UsageError

MOOD = {"near": "well", "same": "well"}


@reward(
    version=1,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case("4", {"answer": "4"}, 1.0),
        Case("5", {"answer": "4"}, 0.5),
        Case("no", {"answer": "4"}, 0.0),
        Case("4", {"answer": "?"}, None),
        Case("x", {"answer": "4"}, 1.0, options={"wild": True}),
    ],
)
def near(completion: str, answer: str, *, wild: bool = False) -> float | None:
    if MOOD["near"] == "down":
        raise ConnectionError("the judge does not answer")
    if MOOD["near"] == "generous" or wild:
        return 1.0
    if MOOD["near"] == "silent" or answer == "?":
        return None
    return 1.0 if completion == answer else 0.5 if completion.isdigit() else 0.0


@verifier(version=1, isolation="inline", cases=[Case("4", {"answer": "4"}, True), Case("5", {"answer": "4"}, False)])
def same(completion: str, answer: str) -> Verdict:
    return Verdict(completion == answer or MOOD["same"] != "well")


NEAR = BoundReward(near, "their-dist")
SAME = BoundVerifier(same, "their-dist")


@pytest.fixture(autouse=True)
def _well() -> None:
    MOOD.update(near="well", same="well")


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "known.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def watch_of(canaries: Sequence[Canary], **settings: Any) -> CanaryWatch:
    titles = {(canary.kind, canary.name): f"{canary.kind} '{canary.name}'" for canary in canaries}
    return CanaryWatch(canaries, titles, **{"tolerance": 1e-6, "share": 0.0, "patience": 2, **settings})


def looks(watch: CanaryWatch, *moods: str) -> list[Look]:
    found = []
    with Scorer([NEAR, SAME], retries=0) as scorer:
        for step, mood in enumerate(moods, start=1):
            MOOD["near"] = mood
            found.append(watch.look(scorer, step))
    return found


def test_the_cases_of_the_run_are_canaries() -> None:
    found = canaries_of(None, True, [NEAR], [SAME])
    assert [(c.kind, c.name, c.expect) for c in found] == [
        ("reward", "near", 1.0),
        ("reward", "near", 0.5),
        ("reward", "near", 0.0),
        ("reward", "near", None),
        ("verifier", "same", 1.0),
        ("verifier", "same", 0.0),
    ]
    wild = BoundReward(near, "their-dist", {"wild": True})
    assert [c.completion.text for c in canaries_of(None, True, [wild], [])] == ["x"]


def test_a_line_says_what_each_plugin_should_score(tmp_path: Path) -> None:
    line = {"completion": "4", "answer": "4", "expect": {"near": 1, "same": True}}
    abstains = {"completion": "4", "answer": "?", "expect": {"near": None}}
    found = canaries_of(written(tmp_path, line, abstains), False, [NEAR], [SAME])
    assert [(c.kind, c.name, c.expect) for c in found] == [
        ("reward", "near", 1.0),
        ("verifier", "same", 1.0),
        ("reward", "near", None),
    ]
    assert found[0].completion.row == {"answer": "4"}
    assert found[2].where.endswith("known.jsonl, line 2")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"completion": "4", "answer": "4"}, 'has no table "expect"'),
        ({"completion": "4", "answer": "4", "expect": {}}, 'has no table "expect"'),
        ({"completion": "4", "answer": "4", "expect": {"nere": 1}}, "no 'nere'. Did you mean 'near'?"),
        ({"completion": "4", "answer": "4", "expect": {"near": True}}, "cannot be expected to say True"),
        ({"completion": "4", "answer": "4", "expect": {"near": "1"}}, "only a finite number or null"),
        ({"completion": "4", "answer": "4", "expect": {"same": 1}}, "only true, false or null"),
        ({"completion": "4", "expect": {"near": 1}}, "needs the column 'answer'"),
        ({"answer": "4", "expect": {"near": 1}}, "no 'completion'"),
        ("text", "a JSON str"),
    ],
)
def test_an_unusable_line_is_named(tmp_path: Path, line: Any, words: str) -> None:
    with pytest.raises(DatasetError) as caught:
        canaries_of(written(tmp_path, line), False, [NEAR], [SAME])
    assert words in str(caught.value)
    assert "known.jsonl, line 1" in str(caught.value)


def test_no_file_and_no_canary_are_refused(tmp_path: Path) -> None:
    assert canaries_of(None, False, [NEAR], [SAME]) == ()
    with pytest.raises(UsageError, match="cannot read the canaries"):
        canaries_of(tmp_path / "none.jsonl", False, [NEAR], [SAME])
    with pytest.raises(UsageError, match="there are no canaries"):
        canaries_of(written(tmp_path), False, [NEAR], [SAME])


def test_a_plugin_that_is_well_has_no_false_verdicts_and_no_warning() -> None:
    [look] = looks(watch_of(canaries_of(None, True, [NEAR], [SAME])), "well")
    assert set(look.metrics.values()) == {0.0}
    assert sorted(look.metrics) == [
        f"canaries/{name}/{what}"
        for name in ("near", "same")
        for what in ("drift", "failure", "false_negative", "false_positive")
    ]
    assert (look.warnings, look.stop) == ([], None)


def test_drift_is_measured_warned_of_and_then_stops() -> None:
    watch = watch_of(canaries_of(None, True, [NEAR], [SAME]))
    first, *bad = looks(watch, "well", "generous", "generous", "generous")
    assert first.stop is None
    assert [look.metrics["canaries/near/false_positive"] for look in bad] == [1.0] * 3
    assert [look.metrics["canaries/near/false_negative"] for look in bad] == [0.0] * 3
    assert [look.metrics["canaries/near/drift"] for look in bad] == [0.75] * 3
    assert [len(look.warnings) for look in bad] == [1, 1, 0]
    assert "The run stops if it is so 2 more times in a row." in bad[0].warnings[0]
    assert [look.stop is None for look in bad] == [True, True, False]
    assert str(bad[2].stop).startswith("reward 'near' went wrong about 3 of its 4 canaries in step 4: case 1 of")


def test_an_outage_is_a_failure_and_no_false_negative() -> None:
    _, bad = looks(watch_of(canaries_of(None, True, [NEAR], [])), "well", "down")
    assert bad.metrics["canaries/near/failure"] == 1.0
    assert bad.metrics["canaries/near/false_negative"] == bad.metrics["canaries/near/drift"] == 0.0
    assert "the judge does not answer" in bad.warnings[0]


def test_silence_is_a_false_negative() -> None:
    _, bad = looks(watch_of(canaries_of(None, True, [NEAR], [])), "well", "silent")
    assert bad.metrics["canaries/near/false_negative"] == 1.0
    assert bad.metrics["canaries/near/false_positive"] == 0.0
    assert bad.metrics["canaries/near/drift"] == 0.75


def test_a_passing_fault_stops_nothing() -> None:
    watch = watch_of(canaries_of(None, True, [NEAR], []))
    found = looks(watch, "well", "down", "down", "well", "down", "down", "well")
    assert all(look.stop is None for look in found)


def test_what_was_wrong_from_the_start_is_told_once_and_is_no_drift() -> None:
    watch = watch_of(canaries_of(None, True, [NEAR], []))
    found = looks(watch, "generous", "generous", "generous", "generous", "well")
    assert [len(look.warnings) for look in found] == [1, 0, 0, 0, 0]
    assert "is wrong about 3 of its 4 canaries from the start" in found[0].warnings[0]
    assert found[1].metrics["canaries/near/false_positive"] == 1.0
    assert found[1].metrics["canaries/near/drift"] == found[4].metrics["canaries/near/drift"] == 0.0


def test_share_and_tolerance_allow_for_a_judge_that_wavers() -> None:
    cases = canaries_of(None, True, [NEAR], [])
    assert looks(watch_of(cases, share=0.75), "well", "generous")[1].warnings == []
    near_half = looks(watch_of(cases, tolerance=0.5), "well", "generous")[1]
    assert near_half.metrics["canaries/near/drift"] == 0.5


def test_a_component_of_a_rubric_has_canaries_of_its_own(tmp_path: Path) -> None:
    whole = BoundReward(rubric(name="whole", version=1, components=[Component(near, 2.0)]), "their-dist")
    line = {"completion": "4", "answer": "4", "expect": {"whole": 2.0, "whole.near": 1.0}}
    cases = canaries_of(written(tmp_path, line), False, [whole], [])
    with Scorer([whole], retries=0) as scorer:
        look = watch_of(cases).look(scorer, 1)
    assert list(look.scores) == [2.0, 1.0]


def test_the_fingerprint_knows_what_is_scored_and_expected() -> None:
    canary = Canary("reward", "near", "near", Completion("4", row={"answer": "4"}), 1.0, "here")
    other = Canary("reward", "near", "near", Completion("4", row={"answer": "5"}), 1.0, "here")
    assert fingerprint([canary]) == fingerprint([Canary("reward", "near", "near", canary.completion, 1.0, "there")])
    assert fingerprint([canary]) != fingerprint([other])


GOES_BAD = '''
from pathlib import Path
from grpo import Case, reward

@reward(version=1, range=(0.0, 1.0), cases=[Case("aaaa", expect=1.0), Case("bbbb", expect=0.0)])
def vowels(completion: str) -> float:
    """The share of vowels, as long as the file beside it says so."""
    wanted = Path({file!r}).read_text()
    return sum(letter in wanted for letter in completion) / max(len(completion), 1)
'''


class Saboteur(Silent):
    """Changes what the reward reads after a step, and keeps the warnings."""

    def __init__(self, file: Path, after: int, text: str | None) -> None:
        self.file, self.after, self.text = file, after, text
        self.warnings: list[str] = []

    def stepped(self, row: Mapping[str, Any], sample: Completion | None, scores: Mapping[str, str]) -> None:
        if row["step"] == self.after:
            self.file.unlink()
            if self.text is not None:
                self.file.write_text(self.text)

    def warned(self, text: str) -> None:
        self.warnings.append(text)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["abcdefghijklmnopqrstuvwxyz", None], ids=["drift", "outage"])
def test_a_reward_that_goes_bad_in_the_middle_of_a_run_stops_it_by_name(
    tiny_model: Path, tmp_path: Path, text: str | None
) -> None:
    from grpo.core.config.schema import parse_config
    from grpo.core.record.run_dir import open_run_dir, read_json, read_metrics
    from grpo.core.run.job import resume, start
    from grpo.plugins.host import Host

    letters, mine = tmp_path / "letters.txt", tmp_path / "mine.py"
    letters.write_text("aeiou")
    mine.write_text(GOES_BAD.format(file=str(letters)))
    known = written(tmp_path, {"completion": "ab", "expect": {"vowels": 0.5}})
    settings = {
        "env": "gsm8k:size=8",
        "rewards": [f"{mine}:vowels"],
        "model": str(tiny_model),
        "dataset": "embedded",
        "out": str(tmp_path / "run"),
        "train": {"steps": 6, "prompts_per_step": 1, "group_size": 2},
        "rollout": {"max_completion_length": 8},
        "evaluation": {"size": 0},
        "output": {"save_every": 1},
        "failures": {"stop_share": 1.0, "retries": 0},
        "canaries": {"file": str(known), "cases": True, "patience": 1},
    }
    saboteur = Saboteur(letters, 2, text)
    with pytest.raises(
        RunError, match=r"reward 'vowels' \(.*mine\.py\) went wrong about \d of its 3 canaries in step 4"
    ):
        start(parse_config(settings), Host.discover(), saboteur)
    assert any("in step 3" in warning and "The run stops" in warning for warning in saboteur.warnings)
    run = open_run_dir(tmp_path / "run")
    rows = read_metrics(run)
    told = "canaries/vowels/failure" if text is None else "canaries/vowels/false_positive"
    assert [row[told] for row in rows] == [0.0, 0.0, 1.0]
    assert rows[0]["time/canaries"] > 0
    assert read_json(run.canaries)["scores"][:3] == [0.5, 1.0, 0.0]
    letters.write_text("aeiou")
    assert resume(run.path, Host.discover(), Silent()).status == "done"
    drift = [row["canaries/vowels/drift"] for row in read_metrics(run)]
    assert drift == pytest.approx([0.0, 0.0, 2 / 3 if text else 0.0, 0.0, 0.0, 0.0])


@reward(
    version=1,
    range=(0.0, 1.0),
    scope="group",
    isolation="inline",
    cases=[Case(["a", "bb"], expect=[1.0, 0.0]), Case("ccc", expect=1.0)],
)
def shortest(completions: list[str]) -> list[float]:
    return [float(len(text) == min(map(len, completions))) for text in completions]


def test_the_cases_of_a_reward_of_groups_are_watched_as_groups(tmp_path: Path) -> None:
    plugin = BoundReward(shortest, "their-dist")
    file = written(
        tmp_path,
        {"completion": "long", "group": "x", "expect": {"shortest": 0.0}},
        {"completion": "alone", "expect": {"shortest": 1.0}},
        {"completion": "s", "group": "x", "expect": {"shortest": 1.0}},
    )
    canaries = canaries_of(file, True, [plugin], [])
    assert len(canaries) == 6
    watch = CanaryWatch(canaries, {("reward", "shortest"): "shortest"}, tolerance=0.0, share=0.0, patience=0)
    with Scorer([plugin]) as scorer:
        look = watch.look(scorer, 1)
    assert list(look.scores) == [0.0, 1.0, 1.0, 1.0, 0.0, 1.0]
    assert (look.warnings, look.stop) == ([], None)
    regrouped = [
        Canary(c.kind, c.name, c.owner, replace(c.completion, group=None), c.expect, c.where) for c in canaries
    ]
    assert fingerprint(regrouped) != fingerprint(canaries)


def test_a_group_of_canaries_of_which_some_are_not_for_the_reward_is_refused(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {"completion": "4", "answer": "4", "group": 1, "expect": {"shortest": 1.0, "near": 1.0}},
        {"completion": "44", "answer": "4", "group": 1, "expect": {"near": 0.5}},
    )
    with pytest.raises(DatasetError, match="line 2: 'shortest' scores groups, and of group 1 only some lines say"):
        canaries_of(file, False, [NEAR, BoundReward(shortest, "their-dist")], [])
