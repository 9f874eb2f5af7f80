"""The alarm in a run: its words, the smallest text that pays, the end of a run, and what a resumed one remembers."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from grpo import Completion
from grpo.core.config.schema import parse_config
from grpo.core.display.progress import Silent
from grpo.core.monitor.hacking.alarm import RunAlarm, smallest
from grpo.core.monitor.hacking.signals import HackingWatch
from grpo.core.plan import Plan
from grpo.core.planning.decide import make_plan
from grpo.core.record.list import list_runs
from grpo.core.record.run_dir import RunDir, create_run_dir, open_run_dir, read_json, write_rollouts
from grpo.core.report.alarms import AlarmWatch
from grpo.core.report.scan import recorded_steps
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.batch.batch import Batch, advantages_of
from grpo.core.train.batch.rollout_rows import rollout_rows
from grpo.plugins.errors import RunError
from grpo.plugins.host import Host

ENOUGH = 30  # steps of such a batch ring in any case
WRONG = "aeiou the wrong answer, which holds nothing but vowels: aaaa"
GROUNDED = """
import re
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def grounded(completion: str, question: str) -> float:
    found = re.search(r"<answer>\\s*(\\d+)", completion)
    return float(found is not None and found[1] in re.findall(r"\\d+", question))
"""


LARGE = """
from grpo import reward

calls = []

@reward(version=1, isolation="inline")
def large(completion: str) -> float:
    calls.append(1)
    return (1e200 if len(calls) > 64 * 2 else 1.0) * (len(completion) % 7 - 3)
"""


class Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def warned(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def plan(tiny_model: Path, tmp_path: Path, vowels: str) -> Plan:
    tree = {"env": "gsm8k", "dataset": "embedded", "model": str(tiny_model), "out": str(tmp_path / "planned")}
    return make_plan(parse_config({**tree, "rewards": [vowels], "train": {"limit": 4}}), Host.discover())


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return create_run_dir(tmp_path / "run", {}, {})


def batch_of(plan: Plan, step: int) -> Batch:
    """Two right completions without a score, and two wrong ones that score as the reward does."""
    texts, scores = ["xyz", WRONG, "xyz", WRONG], [0.0, share(WRONG), 0.0, share(WRONG)]
    outcomes = {"vowels": [Outcome("score", score) for score in scores]}
    return Batch(
        step=step,
        completions=tuple(Completion(text, row={"answer": "4"}, token_ids=(1,)) for text in texts),
        outcomes=outcomes,
        advantages=advantages_of(outcomes, plan.rewards, 4, plan.advantage, torch.device("cpu")),
        group_size=4,
        generate_seconds=0.0,
        score_seconds=0.0,
        right=(True, False, True, False),
    )


def share(text: str) -> float:
    return sum(letter in "aeiou" for letter in text) / len(text)


def test_it_warns_once_with_the_rollouts_and_the_smallest_text_that_pays(plan: Plan, run_dir: RunDir) -> None:
    heard = Heard()
    alarm = RunAlarm(plan, run_dir, heard)
    for step in range(1, ENOUGH):
        alarm.on_batch(batch_of(plan, step))  # to stop is opt-in
    [said] = [text for text in heard.said if "prefers wrong completions" in text]
    assert "See completions #1, #3." in said
    assert f"grpo show {run_dir.path} --step" in said
    assert re.search(r"The smallest text with the score 0\.\d+ of 'vowels' is '[aeiou]'\.", said)


def test_a_run_that_is_to_stop_stops_with_what_was_seen(plan: Plan, run_dir: RunDir) -> None:
    section = plan.config.evaluation.model_copy(update={"stop_on_alarm": True})
    alarm = RunAlarm(replace(plan, config=plan.config.model_copy(update={"evaluation": section})), run_dir, Silent())
    steps = map(alarm.on_batch, (batch_of(plan, step) for step in range(1, ENOUGH)))
    with pytest.raises(RunError, match=r"evaluation.stop_on_alarm: .*prefers wrong completions.*start a new run"):
        deque(steps, maxlen=0)


def test_a_run_that_goes_on_remembers_what_was_recorded_and_does_not_ring_again(plan: Plan, run_dir: RunDir) -> None:
    for step in range(1, ENOUGH):
        write_rollouts(run_dir, step, rollout_rows(batch_of(plan, step)))
    heard = Heard()
    alarm = RunAlarm(plan, run_dir, heard)
    for step in range(ENOUGH, 2 * ENOUGH):
        alarm.on_batch(batch_of(plan, step))
    assert heard.said == []


def fails(*_: object, **__: object) -> None:
    raise ValueError("nobody thought of this")


def test_an_error_in_the_alarm_ends_it_with_one_warning_and_not_the_run(
    plan: Plan, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rollouts(run_dir, 1, rollout_rows(batch_of(plan, 1)))
    monkeypatch.setattr(HackingWatch, "look", fails)
    for begun in (run_dir, create_run_dir(run_dir.path.with_name("new"), {}, {})):
        heard = Heard()
        alarm = RunAlarm(plan, begun, heard)
        for step in (2, 3):
            assert alarm.on_batch(batch_of(plan, step)) == {}
        [said] = heard.said
        assert "the reward-hacking alarm is off for the rest of this run" in said
        assert "ValueError: nobody thought of this" in said


def test_a_suspicion_is_told_of_though_the_search_for_a_smaller_text_fails(
    plan: Plan, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo.core.monitor.hacking.alarm.shrink", fails)
    heard = Heard()
    alarm = RunAlarm(plan, run_dir, heard)
    for step in range(1, ENOUGH):
        alarm.on_batch(batch_of(plan, step))
    [said] = [text for text in heard.said if "prefers wrong completions" in text]
    assert said.endswith("The search for a smaller text failed: ValueError: nobody thought of this.")


def test_no_smaller_text_is_looked_for_when_the_time_is_over(plan: Plan) -> None:
    completion = Completion(WRONG, row={"answer": "4"})
    assert smallest(plan.rewards[0], completion, share(WRONG), 0.0) == WRONG


@pytest.mark.core
def test_a_run_whose_reward_is_exploited_ends_with_the_alarm_and_the_report_tells_of_it(tmp_path: Path) -> None:
    from grpo.core.cli.main import cli

    (tmp_path / "mine.py").write_text(GROUNDED)
    out = tmp_path / "run"
    command = f"run --env gsm8k --reward {tmp_path}/mine.py:grounded --lr 1e-4 --steps 12 --eval-size 0 --out {out}"
    with pytest.raises(RunError, match=r"--stop-on-alarm: .*prefers wrong completions"):
        cli([*command.split(), "--quiet", "--stop-on-alarm"], standalone_mode=False)
    run = open_run_dir(out)
    assert read_json(run.state)["status"] == "failed"
    page = tmp_path / "page.html"
    assert not cli(["report", str(out), "--output", str(page)], standalone_mode=False)
    watch = AlarmWatch("float32", [])
    for step, rows in recorded_steps(run):
        watch.rollouts(step, rows)
    [line] = list_runs(out)
    assert "hacking" in {alarm.kind for alarm in watch.alarms(line)}


@pytest.mark.slow
def test_a_run_that_falls_apart_ends_with_the_alarm_and_the_report_tells_of_it(tmp_path: Path) -> None:
    from grpo.core.cli.main import cli

    out = tmp_path / "run"
    command = f"run --env gsm8k --reward proximity --lr 1e-3 --seed 61 --steps 25 --eval-size 0 --out {out}"
    with pytest.raises(RunError, match=r"--stop-on-alarm: is the policy collapsing\? .* fell .* lower --lr"):
        cli([*command.split(), "--quiet", "--stop-on-alarm"], standalone_mode=False)
    watch = AlarmWatch("float32", [])
    for step, rows in recorded_steps(open_run_dir(out)):
        watch.rollouts(step, rows)
    [line] = list_runs(out)
    assert any("collapsing" in alarm.text for alarm in watch.alarms(line) if alarm.kind == "health")


@pytest.mark.slow
def test_rewards_that_overflow_end_a_run_and_its_resumption_in_words_and_are_reported(tmp_path: Path) -> None:
    from grpo.core.cli.main import cli

    (tmp_path / "mine.py").write_text(LARGE)
    out = tmp_path / "run"
    command = f"run --env gsm8k --reward {tmp_path}/mine.py:large --steps 6 --eval-size 0 --out {out} --quiet"
    for arguments in (command.split(), ["run", "--resume", str(out), "--quiet"]):
        with pytest.raises(RunError, match="the rewards of a step overflow"):
            cli(arguments, standalone_mode=False)
    assert not cli(["report", str(out), "--output", str(tmp_path / "page.html")], standalone_mode=False)
