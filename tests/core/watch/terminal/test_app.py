"""`grpo show --live`, driven by keys on real run directories: what is on the screen is what a reader would see."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostile_texts import hostile_texts
from made_run import failed, made_metrics, made_rollout, made_run

from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.record.run_dir import RolloutRow, RunDir, append_metrics, write_rollouts
from grpo.core.text.printable import printable

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from grpo.core.watch.terminal.app import LiveApp, Opening

pytestmark = [pytest.mark.live, pytest.mark.slow]
PATIENCE = 60.0  # seconds
MARKUP = (
    "[bold red]red[/bold red]",
    "[@click=app.quit]click[/]",
    "[link=https://evil.example]here[/link]",
    "[/]",
    "[",
    "$error",
    ":smile:",
    "\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "\x1b[2J\x1b[Hgone",
    "\x9b31mred",
    "\x1bP+q544e\x1b\\",
)
Play = Callable[["Screen"], Awaitable[None]]


class Screen:
    """What a reader sees and does."""

    def __init__(self, app: LiveApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines())

    @property
    def chosen(self) -> str:
        """Step, group and number of the rollout that is marked in the list."""
        [line] = [line for line in self.lines() if line.startswith("> ")]
        return ".".join(line[1:].split()[:3])

    async def until(self, told: str) -> None:
        end = time.monotonic() + PATIENCE
        while told not in self.text:
            assert time.monotonic() < end, f"no {told!r} in:\n{self.text}"
            await self.pilot.pause(0.02)

    async def press(self, *keys: str, told: str = "") -> None:
        await self.pilot.press(*keys)
        await self.until(told)

    async def type(self, text: str, told: str = "") -> None:
        await self.press(*text, "enter", told=told)


def play(run: RunDir, what: Play, *, size: tuple[int, int] = (80, 24), opening: Opening | None = None) -> None:
    from grpo.core.watch.terminal.app import LiveApp

    async def played() -> None:
        app = LiveApp(run, opening)
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            await screen.until("as of ")
            await what(screen)

    asyncio.run(played())


def listed(**choices: str) -> Opening:
    from grpo.core.watch.terminal.app import Opening

    return Opening(choices, rollouts=True)


def grow(run: RunDir, step: int) -> None:
    rows = [made_rollout(step, number // 4, number % 4, 1.0) for number in range(8)]
    write_rollouts(run, step, rows)
    append_metrics(run, made_metrics(step, rows))


def rows(screen: Screen) -> list[str]:
    """The lines between top and bottom, without the bar that says how much there is above and below."""
    return [line[:78].rstrip() for line in screen.lines()[3:23]]


def breaking(row: RolloutRow, number: int) -> RolloutRow:
    return failed(row, "it broke") if (row.step, number) == (2, 5) else row


def test_damage_of_one_step_is_told_and_the_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # so that where lines break does not depend on the folder
    run = made_run(Path("pens"))
    second, third = (run.rollouts / f"step-00000{step}.parquet" for step in (2, 3))
    second.write_bytes(b"PAR1 half")
    run.state.write_text(json.dumps({"status": "done\x1b[31m"}))

    async def what(screen: Screen) -> None:
        await screen.until("step-000002.parquet was damaged")
        await screen.until("unknown")
        await screen.press("r", told="16 of 16 rollouts")
        await screen.press("end", "enter", told="She has")
        third.write_bytes(b"PAR1 half")  # after its numbers were read
        screen.app._followed._texts.clear()
        await screen.press("k", told="was damaged: Parquet magic bytes")
        run.metrics.write_text("[" * 200_000 + "\n")
        await screen.until("metrics.jsonl, line 1, was damaged")
        await screen.press("home", told="16 of 16 rollouts")

    play(run, what, size=(200, 30))


def test_the_overview_has_figures_alarms_and_curves_and_an_alarm_leads_to_its_rollouts(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", change=breaking)

    async def read(screen: Screen) -> None:
        await screen.until("'proximity' failed on 1 rollout")
        top = screen.lines()[0]
        for told in ("pens", "done", "step 3 of 3", "reward 1"):
            assert told in top
        for told in ("held out  40.0% -> 90.0%", "completions/mean_length", "0.4 -> 0.9", "always 0: frac_reward"):
            await screen.until(told)
        await screen.press("enter", told="1 of 24 rollouts  failed=proximity")
        assert screen.chosen == "2.1.5"
        await screen.press("enter", told="it broke")

    play(run, read)


def test_keys_move_open_and_lead_back(tmp_path: Path) -> None:
    async def read(screen: Screen) -> None:
        await screen.press("r", told="24 of 24 rollouts")
        assert screen.chosen == "1.0.0"
        await screen.press("j", "j", "k", "down")
        assert screen.chosen == "1.0.2"
        await screen.press("end")
        assert screen.chosen == "3.1.7"
        await screen.press("home", "enter", told="step 1, group 0, #0")
        await screen.press("j", told="step 1, group 0, #1")
        for told in ("Ann has 3 pens", "She has 3+4=7.", "proximity  1  x 1", "right", "answer"):
            await screen.until(told)
        await screen.press("escape", told="24 of 24 rollouts")
        assert screen.chosen == "1.0.1"
        await screen.press("l", told="8 of 24 rollouts  step=1")
        await screen.press("l", told="step=2")
        await screen.press("l", "l", told="step=3")
        await screen.press("h", told="step=2")
        assert screen.chosen.startswith("2.")
        await screen.press("s", told="train.lr = 3e-05")
        await screen.press("question_mark", told="the difference to the best")
        await screen.press("x")
        await screen.until("libraries.torch = 2.13.0")
        await screen.press("o", told="held out")
        await screen.press("q")
        assert screen.app._exit

    play(made_run(tmp_path / "pens"), read)


def test_a_rollout_is_compared_with_its_group_and_shown_by_token(tmp_path: Path) -> None:
    async def read(screen: Screen) -> None:
        await screen.until("4 of 24 rollouts")
        await screen.press("j", "j", "g", told="group 1: 4 rollouts")
        await screen.press("pagedown", "pagedown")
        await screen.until("She has 4+5=12.")
        await screen.press("g", told="Completion")
        await screen.press("d", told="how #4 of its group differs (reward 1)")
        await screen.until("She has 4+5=911.")  # what is there alone, and then what is here alone
        await screen.press("d", "t", told="recorded no log-probabilities")
        await screen.press("j", told="#7")

    play(made_run(tmp_path / "pens"), read, opening=listed(step="1", group="1"))


def test_tokens_are_marked_the_less_probable_they_were(tmp_path: Path) -> None:
    text = "She has 3+4=7."
    ids = load_tokenizer(str(embedded_model_path()))(text, add_special_tokens=False)["input_ids"]
    logprobs = [-0.001] * (len(ids) - 1) + [-7.0]

    def change(row: RolloutRow, number: int) -> RolloutRow:
        return replace(row, completion=text, token_ids=ids, logprobs=logprobs)

    run = made_run(tmp_path / "pens", change=change)
    shutil.copytree(embedded_model_path(), run.model)

    async def read(screen: Screen) -> None:
        await screen.until("24 of 24 rollouts")
        await screen.press("enter", "t", told="Completion by token")
        await screen.until(text)
        [strip] = [one for one in screen.app.screen._compositor.render_strips() if text in one.text]
        marked = [part for part, style, _ in strip if style is not None and style.reverse]
        assert marked == ["."]

    play(run, read, opening=listed())


def test_turns_show_what_each_got_and_tools_what_they_said(tmp_path: Path) -> None:
    turns = [
        {"role": "assistant", "content": "look", "tool_calls": [{"function": {"name": "peek"}}]},
        {"role": "tool", "content": "a pen"},
        {"role": "assistant", "content": "one pen"},
    ]

    def change(row: RolloutRow, number: int) -> RolloutRow:
        info = json.dumps({"failure": "the lid fell", "rewards": [0.25, 0.5]})
        told: dict[str, Any] = {"messages": json.dumps(turns), "info": info, "turn_advantages": [0.5, -0.5]}
        return replace(row, completion="one pen", finish_reason="error", **told)

    async def read(screen: Screen) -> None:
        await screen.until("24 of 24 rollouts")
        await screen.press("enter", told="turn 2  reward 0.5  advantage -0.5")
        for told in ("the lid fell", "turn 1  reward 0.25  advantage +0.5", "peek", "a pen", "ended by an error"):
            await screen.until(told)

    play(made_run(tmp_path / "pens", change=change), read, size=(80, 60), opening=listed())


def test_words_filters_and_steps_are_asked_for_and_what_is_wrong_is_said(tmp_path: Path) -> None:
    async def read(screen: Screen) -> None:
        await screen.press("slash")
        await screen.type("4+5=1", told="3 of 24 rollouts  /4+5=1")
        await screen.press("f")
        await screen.type("verdict=write", told="no verdict 'write'. Did you mean 'right'?")
        await screen.press(*["backspace"] * 5)
        await screen.type("wrong sort=-advantage", told="/4+5=1  verdict=wrong sort=-advantage")
        await screen.press("colon")
        await screen.type("2", told="sort=-advantage step=2")
        assert screen.chosen.startswith("2.1.")
        await screen.press("f", "ctrl+u", "enter")
        await screen.press("slash", "ctrl+u", "enter", told="24 of 24 rollouts")
        await screen.press("slash", "q", "j", "escape")
        assert "search:" not in screen.text

    play(made_run(tmp_path / "pens"), read)


@pytest.mark.parametrize("sort", ["", "-reward"])
def test_whoever_reads_keeps_their_place_while_a_run_goes_on(tmp_path: Path, sort: str) -> None:
    run = made_run(tmp_path / "pens", steps=20)

    async def read(screen: Screen) -> None:
        await screen.until("160 of 160 rollouts")
        await screen.press(*["pagedown"] * 3, "j")
        chosen, seen = screen.chosen, rows(screen)
        grow(run, 21)
        await screen.until("168 of 168 rollouts")
        assert screen.chosen == chosen
        assert rows(screen) == seen
        await screen.press("enter", told="Completion")
        opened = rows(screen)
        grow(run, 22)
        await screen.until("step 22 of 20")
        assert rows(screen) == opened
        await screen.press("escape", told="176 of 176 rollouts")
        assert screen.chosen == chosen

    play(run, read, opening=listed(**({"sort": sort} if sort else {})))


def test_a_run_that_has_not_begun_fills_the_screen_when_it_does(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", steps=0)

    async def read(screen: Screen) -> None:
        await screen.until("No rollouts yet")
        await screen.press("j", "enter", "g", "d", "h", "l", "c", "end", "escape")
        grow(run, 1)
        await screen.until("8 of 8 rollouts")
        assert screen.chosen == "1.0.0"

    play(run, read, opening=listed())


def test_nobody_is_disturbed_while_they_write(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens")

    async def read(screen: Screen) -> None:
        await screen.until("24 of 24 rollouts")
        await screen.press("slash", *"4+")
        grow(run, 4)
        await screen.until("32 of 32 rollouts")
        assert "search: 4+" in screen.text
        await screen.type("5=9", told="/4+5=9")

    play(run, read, opening=listed())


def test_a_run_that_goes_on_from_an_earlier_step_takes_the_reader_along(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens", steps=6)

    async def read(screen: Screen) -> None:
        await screen.until("48 of 48 rollouts")
        await screen.press(*["j"] * 11)
        assert screen.chosen == "2.0.3"
        lines = run.metrics.read_text().splitlines(keepends=True)
        for step in (4, 5, 6):
            (run.rollouts / f"step-{step:06d}.parquet").unlink()
        run.metrics.write_text("".join(lines[:4]))
        await screen.until("24 of 24 rollouts")
        assert screen.chosen == "2.0.3"

    play(run, read, opening=listed())


def test_a_run_that_is_gone_is_said_and_what_was_read_stays(tmp_path: Path) -> None:
    run = made_run(tmp_path / "pens")

    async def read(screen: Screen) -> None:
        await screen.until("24 of 24 rollouts")
        shutil.rmtree(run.path)
        await screen.until("gone.")  # "is" may end the line before, after a long path
        await screen.press("j")
        assert screen.chosen == "1.0.1"

    play(run, read, opening=listed())


def test_a_rollout_stands_beside_the_list_where_there_is_room(tmp_path: Path) -> None:
    async def read(screen: Screen) -> None:
        await screen.until("step 1, group 0, #0")
        assert "24 of 24 rollouts" in screen.text
        await screen.press("j", told="step 1, group 0, #1")
        await screen.pilot.resize_terminal(80, 24)
        await screen.until("24 of 24 rollouts")
        assert "group 0, #1" not in screen.text

    play(made_run(tmp_path / "pens"), read, size=(140, 40), opening=listed())


def test_no_text_of_a_run_is_anything_but_text(tmp_path: Path) -> None:
    texts = [*MARKUP, *hostile_texts()]

    def hostile(row: RolloutRow, number: int) -> RolloutRow:
        text = texts[number % len(texts)]
        said = [{"role": text, "content": text, text: text}, {"role": "assistant", "content": text}]
        return replace(
            row,
            prompt=json.dumps([{"role": text, "content": text}]),
            completion=text,
            columns=json.dumps({text: text}),
            messages=json.dumps(said) if number % 3 == 0 else None,
            info=json.dumps({text: text, "failure": text, "rewards": [text, 1]}) if number % 3 == 0 else None,
            outcomes={"proximity": ("failure", None, text), texts[0]: ("score", 0.5, text)},
            env=texts[number % 3],
        )

    run = made_run(
        tmp_path / "[bold]pens", steps=1, groups=-(-len(texts) // 4), change=hostile, other=dict.fromkeys(texts, "x")
    )
    for text in texts[:40]:
        append_metrics(run, {"step": 2, f"rewards/{text}/mean": 0.5, f"canaries/{text}/drift": 0.5, text: 1.0})

    async def read(screen: Screen) -> None:
        await screen.until("[bold red]red[/bold red]")
        assert "[bold]pens" in screen.text
        inert(screen)
        await screen.press("s", told="$error = x")
        inert(screen)
        await screen.press("r", told="rollouts")
        inert(screen)
        await screen.press("enter")
        for number, text in enumerate(texts):
            await screen.until(f", #{number}")
            inert(screen)
            shown = printable(text).split("\n")[0].strip()
            assert shown[:20] in screen.text or not shown.isascii()
            if number % 25 == 0:
                for key in "gdt":
                    await screen.press(key)
                    inert(screen)
                await screen.press("t", told=f"#{number}")
            await screen.press("j")
        assert not screen.app._exit

    play(run, read, size=(100, 50), opening=None)


def inert(screen: Screen) -> None:
    """Fails where the screen holds a control character, turns the direction of writing, or does more than show."""
    for strip in screen.app.screen._compositor.render_strips():
        for text, style, control in strip:
            assert not control
            assert printable(text) == text
            assert "\n" not in text
            assert style is None or (style.link is None and "@click" not in style.meta)
