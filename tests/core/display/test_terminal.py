"""What a person sees: plain lines for pipes, a panel for terminals, and no command of a model's obeyed by either."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from grpo.core.config.settings import Settings
from grpo.core.display.notebook import NotebookPanel, display_here
from grpo.core.display.terminal import (
    LivePanel,
    PlainLines,
    Quiet,
    describe,
    display_for,
    ending,
    headline,
    number,
    sparkline,
)
from grpo.core.env.episodes import episodes_of
from grpo.core.env.mixture import RunEnv
from grpo.core.plan import Plan
from grpo.core.policy.load import PolicySource
from grpo.core.run.ray.mailbox import MailboxProgress
from grpo.core.text.stats import proportion
from grpo.core.timing.forecast import Forecast, Range
from grpo.plugins._host.loading import GIVEN
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

HOSTILE = "[bold red]7[/bold red] [/] \x1b[31m\x1b]0;owned\x07\x1b[2J\r\x9b5m [link=file:///etc]x[/link]"
ROW = {
    "step": 3,
    "reward": 0.123456,
    "accuracy": 0.5,
    "rewards/near/mean": 0.1,
    "rewards/far/mean": None,
    "rewards/far/failure": 0.25,
    "rewards/near/failure": 0.0,
    "completions/mean_length": 1234.5,
    "frac_reward_zero_std": 0.0,
    "loss": -0.002,
    "time/step": 1.25,
}


@pytest.fixture
def plan() -> Plan:
    host = Host.discover()
    train = {"steps": 10, "lr": 3e-5, "warmup_lr": 3e-4, "micro_batch_size": 8, "dtype": "float32"}
    tree: dict[str, Any] = {"env": "gsm8k", "train": {**train, "checkpointing": "none"}, "output": {"save_every": 20}}
    tree |= {"loss": {"type": "grpo", "rollout_correction": "none"}, "rollout": {"max_completion_length": 96}}
    return Plan(
        config=Settings(**tree),
        source=PolicySource("/models/[x]tiny", embedded=False),
        model_config=None,
        tokenizer=None,
        envs=(
            RunEnv(
                host.env("gsm8k"),
                rewards=tuple(host.rewards(["proximity:weight=2", "gsm8k.soft_format:as=[b]layout"])),
                verifier=None,
                train=(),
                held_out=(),
            ),
        ),
        loss=host.loss("grpo"),
        advantage=host.advantage("group_mean:scale=none"),
        train=(),
        parameters=34_000_000,
        longest_prompt=151,
        disk_bytes=1,
        processes=1,
    )


def test_the_end_of_a_run_proposes_no_command_that_cannot_find_its_objects(plan: Plan) -> None:
    def proposed(**given: Any) -> list[str]:
        config = plan.config.model_copy(update=given)
        return [
            line for line in ending("done", Path("run"), 3, dataclasses.replace(plan, config=config)) if "try" in line
        ]

    assert len(proposed()) == len(proposed(rewards=[f"{GIVEN}/near"])) == 1
    assert proposed(verifier=f"{GIVEN}/right") == proposed(env=f"{GIVEN}/desk") == []


def test_commands_at_the_end_of_a_run_can_be_pasted_where_its_path_has_blanks(plan: Plan) -> None:
    config = plan.config.model_copy(update={"env": "gsm8k"})
    lines = ending("done", Path("my runs/a"), 3, dataclasses.replace(plan, config=config))
    lines += ending("interrupted", Path("my runs/a"), 3, plan) + ending("interrupted", Path("my runs/a"), 3, None)
    proposed = [line for line in lines if "grpo " in line]
    assert len(proposed) == 6
    assert all("'my runs/a'" in line for line in proposed), proposed


def panel() -> tuple[LivePanel, io.StringIO]:
    display, text = LivePanel(), io.StringIO()
    display._console = Console(file=text, force_terminal=True, width=100, color_system=None)
    return display, text


def commands(text: str) -> list[str]:
    """Control characters, apart from the cursor movements of the panel itself."""
    for own in ("\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A", "\r", "\n", "\x1b[1m", "\x1b[0m"):
        text = text.replace(own, "")
    return [character for character in text if ord(character) < 32 or 0x7F <= ord(character) < 0xA0]


def test_held_out_accuracy_follows_the_line_of_its_step_also_where_that_never_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = PlainLines()
    lines.evaluated(0, proportion([True]))
    lines.evaluated(int(ROW["step"]), proportion([True]))
    lines.stepped(ROW, None, {})
    lines.evaluated(int(ROW["step"]) + 4, proportion([True]))
    lines.close()
    lines_shown = [re.findall(r"^(step|held-out)\D*(\d+)", line)[0] for line in capsys.readouterr().out.splitlines()]
    now = str(ROW["step"])
    assert lines_shown == [("held-out", "0"), ("step", now), ("held-out", now), ("held-out", str(ROW["step"] + 4))]


def test_plain_lines_say_what_happened_one_line_an_event(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines()
    lines.planned(plan, Path("runs/[1]"), ["resuming after step 2"])
    lines.evaluating(40, 200)
    lines.evaluated(0, proportion([True, False, None]))
    lines.stepped(ROW, None, {})
    for step in (1, 10, 12):
        lines.warmed(step, 12, 0.5)
    lines.ended("interrupted", Path("runs/[1]"), 3)
    out, err = capsys.readouterr()
    assert "model       /models/[x]tiny (34 M parameters)" in out
    assert "rewards     proximity x 2, [b]layout" in out
    assert "float32, loss grpo, advantage group_mean (scale=none)\n" in out
    assert "directory   runs/[1]" in out
    assert "resuming after step 2" in out
    assert "held-out accuracy: 40 of 200 problems\n" in out
    assert "held-out accuracy after 0 steps: 50.0% (9.5% to 90.5%, 2 problems, 1 left out)" in out
    expected = (
        "step 3  reward 0.123  accuracy 0.5  near 0.1  length 1234  no signal 0  loss -0.002  far failed 0.25  1.2 s"
    )
    assert expected in out
    assert out.count("warm-up") == 2, "every tenth step and the last"
    assert "stopped after step 3. Continue with: grpo run --resume 'runs/[1]'" in out
    assert err == ""


def test_an_environment_without_a_dataset_makes_its_own_episodes(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "games.py").write_text("class Door:\n    def reset(self): ...\n    def get_reward(self): return 1.0\n")
    door = Host.discover().env(f"trl:{tmp_path / 'games.py'}:Door:prompt=Knock.")
    part = dataclasses.replace(plan.envs[0], env=door)
    shown = dict(describe(dataclasses.replace(plan, envs=(part,)), None))
    assert shown["environment"].endswith("0 training rows (its own episodes), 0 held out")


def test_rows_of_an_environment_without_a_dataset_option_are_no_episodes_of_its_own(plan: Plan) -> None:
    spec = dataclasses.replace(plan.envs[0].env.spec, options=())
    part = dataclasses.replace(plan.envs[0], env=dataclasses.replace(plan.envs[0].env, spec=spec, options={}))
    shown = dict(describe(dataclasses.replace(plan, envs=(part,)), None))
    assert shown["environment"].startswith(f"{part.name}: {len(part.train)} training row")
    assert "(" not in shown["environment"]


def test_quiet_prints_warnings_only(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = display_for(quiet=True)
    assert isinstance(quiet, Quiet)
    quiet.planned(plan, None, ["a note"])
    quiet.stepped(ROW, None, {})
    quiet.warned("mind this")
    assert capsys.readouterr() == ("", "warning: mind this\n")


@pytest.mark.parametrize("display", [Quiet, PlainLines])
def test_escape_sequences_in_a_warning_do_not_reach_the_terminal(
    display: type[Quiet | PlainLines], capsys: pytest.CaptureFixture[str]
) -> None:
    display().warned(f"a reward failed on {HOSTILE}")
    err = capsys.readouterr().err
    assert commands(err) == []
    assert "[bold red]7[/bold red] [/]" in err


def test_the_panel_shows_hostile_text_inert_and_whole(plan: Plan) -> None:
    display, text = panel()
    display.planned(plan, Path("runs/[1]"), ["a [note]"])
    sample = Completion(text=HOSTILE, prompt=({"role": "user", "content": "7? [red]\x1b[5m"},))
    display.stepped(ROW, sample, {"[b]layout": "1", "near": "failure"})
    display.warned(HOSTILE)
    display.ended("done", Path("runs/[1]"), 3)
    shown = text.getvalue()
    assert commands(shown) == []
    for part in ("/models/[x]tiny", "[b]layout 1  near failure", "runs/[1]", "a [note]", "7? [red]"):
        assert part in shown, part
    assert shown.count("[bold red]7[/bold red] [/]") == 2


def test_the_panel_survives_every_event_before_and_after_its_life(plan: Plan) -> None:
    display, text = panel()
    display.warned("before anything")
    display.planned(plan, None, ["dry run"])
    display.close()
    display.close()
    assert "before anything" in text.getvalue()
    assert "dry run" in text.getvalue()


def test_the_panel_shows_progress_and_a_sparkline_for_each_reward(plan: Plan) -> None:
    display, text = panel()
    display.planned(plan, Path("runs/x"), [])
    for step in range(1, 5):
        display.stepped(ROW | {"step": step, "rewards/far/mean": step / 4}, None, {})
    display.ended("done", Path("runs/x"), 4)
    shown = text.getvalue()
    assert "step 4/10" in shown
    assert "▁▃▆█" in shown


def test_the_panel_shows_how_far_held_out_accuracy_is_below_the_last_step(plan: Plan) -> None:
    display, text = panel()
    display.planned(plan, Path("runs/x"), [])
    display.stepped(ROW, None, {})
    display.evaluating(40, 200)
    display.evaluating(80, 200)
    display.close()
    assert (last := text.getvalue().rpartition("step 3/10")[2]).count("held-out accuracy: ") == 1
    assert "held-out accuracy: 80 of 200 problems" in last


def test_the_panel_has_one_end_of_the_run_and_none_once_it_is_over(plan: Plan) -> None:
    display, text = panel()
    display.planned(plan, Path("runs/x"), [])
    display.stepped(ROW | {"step": 5}, None, {})
    display.foreseen(Forecast(step=5, steps=10, seconds=Range(5000, 7000), tokens=2000))
    display.stepped(ROW | {"step": 6}, None, {})
    drawn = Console(file=io.StringIO(), width=100)
    with drawn.capture() as while_it_runs:
        drawn.print(display._panel())
    assert "step 6/10" in while_it_runs.get()
    assert "1.2 s/step\n" in while_it_runs.get()
    assert "forecast: 83 to 117 min to go, 1.6 k more tokens sampled" in while_it_runs.get()
    display.evaluating(200, 200)
    display.evaluated(6, proportion([True]))
    display.ended("done", Path("runs/x"), 6)
    last = text.getvalue().rpartition("step 6/10")[2]
    assert "to go" not in last
    assert "of 200 problems" not in last
    assert "held-out accuracy: 100.0% after 6" in last


def test_below_a_cell_the_forecast_stays_until_the_run_is_over(plan: Plan) -> None:
    display = NotebookPanel()
    display.planned(plan, Path("runs/x"), [])
    display.stepped(ROW | {"step": 5}, None, {})
    display.foreseen(Forecast(step=5, steps=10, seconds=Range(5000, 7000), tokens=2000))
    display.stepped(ROW | {"step": 6}, None, {})
    assert "forecast: 83 to 117 min to go, 1.6 k more tokens sampled" in display._html()
    display.ended("done", Path("runs/x"), 10)
    assert "forecast" not in display._html()


def test_how_far_it_is_is_missed_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    for display in (Quiet(), NotebookPanel(), MailboxProgress(SimpleNamespace(ask=None))):
        display.evaluating(3, 200)
    assert capsys.readouterr() == ("", "")


def test_below_a_cell_hostile_text_is_inert_and_the_end_says_how_to_go_on(plan: Plan) -> None:
    hostile = f"{HOSTILE}<img src=x onerror=alert(1)><script>alert(1)</script>"
    display = NotebookPanel()
    display.warned(hostile)
    display.planned(plan, Path("runs/<b>"), ["a <note>"])
    sample = Completion(text=hostile, prompt=({"role": "user", "content": f"7? {hostile}"},))
    for step in range(1, 5):
        row = ROW | {"step": step, "rewards/far/mean": step / 4}
        display.stepped(row, sample, {hostile: "1"})
    display.evaluated(4, proportion([True, False, None]), hostile)
    display.ended("interrupted", Path("runs/<b>"), 4)
    page = display._html()
    assert commands(page) == []
    for tag in ("<img", "<script", "<note", "<b>]"):
        assert tag not in page
    for part in (
        "▁▃▆█",
        "/models/[x]tiny",
        "a &lt;note&gt;",
        "stopped after 4 steps",
        "grpo run --resume &#x27;runs/&lt;b&gt;&#x27;",
    ):
        assert part in page, part
    assert page.count("&lt;script&gt;") == 5, "warning, title, question, completion, environment"


def test_outside_of_a_notebook_python_shows_what_the_command_line_does() -> None:
    assert isinstance(display_here(quiet=False), PlainLines | LivePanel)
    assert isinstance(display_here(quiet=True), Quiet)


def test_a_sparkline_spans_its_values_and_survives_odd_ones() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([-5.0, -5.0]) == "▄▄"
    assert sparkline([1.0]) == "▄"
    assert sparkline([]) == ""
    assert sparkline([0.0, float("inf"), 1.0]) == "▁█"
    assert len(sparkline(list(range(1000)))) == 24


def test_numbers_are_short() -> None:
    assert [number(value) for value in (None, 0.0, 0.123456, -12.3456, 123456.7)] == [
        "-",
        "0",
        "0.123",
        "-12.3",
        "123457",
    ]


def test_a_reward_that_is_called_like_a_metric_is_told_from_it() -> None:
    row = {"step": 1, "rewards/length/mean": 1.0, "rewards/near/mean": 1.0, "completions/mean_length": 9.0}
    assert [label for label, _ in headline(row)] == ["reward length", "near", "length"]


def test_a_single_reward_is_not_shown_beside_the_total() -> None:
    assert [label for label, _ in headline({"step": 1, "reward": 1.0, "rewards/near/mean": 1.0})] == ["reward"]


def test_a_figure_of_a_reward_is_not_taken_for_its_mean_or_its_failures() -> None:
    row = {"rewards/a/mean": 0.5, "rewards/a/judge/mean": 9.0, "rewards/b/mean": 0.25, "rewards/a/judge/failure": 1.0}
    assert headline(row) == [("a", "rewards/a/mean"), ("b", "rewards/b/mean")]


@pytest.mark.parametrize("started", [4096, 4], ids=["started at once", "started when they are asked for"])
def test_training_rows_that_ask_the_same_are_counted(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    monkeypatch.setattr("grpo.core.env.episodes.STARTED", started)
    data = tmp_path / "rows.jsonl"
    numbers = (*range(16), 3, 4, 20, 21)  # the last tenth is held out
    data.write_text("".join(f'{{"prompt": "What is {n} + 1?", "answer": {n + 1}}}\n' for n in numbers))
    env = Host.discover().env(f"rows:dataset={data}")
    part = dataclasses.replace(plan.envs[0], env=env, train=episodes_of(env, "train", limit=None, unbounded=0))
    shown = dict(describe(dataclasses.replace(plan, envs=(part,)), None))
    assert shown["environment"].startswith("rows: 18 training rows, 16 different (")
