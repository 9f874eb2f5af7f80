"""A page whose every text attacks its reader, in a real Chromium: nothing of it runs, loads or is more than text."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostile_texts import hostile_texts
from made_run import made_run
from opened_page import until

import grpo.core.report
from grpo.core.cli.shrink import case_text
from grpo.core.record.run_dir import RolloutRow, append_metrics
from grpo.core.report.report import write_report
from grpo.core.scoring.outcome import Outcome
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
Opened = Callable[..., "Page"]
TEXTS = hostile_texts()
MEMBERS = 8
GROUPS = -(-len(TEXTS) // MEMBERS)
NUMBERS = [0.1, 1e-07, 12345678901234567890, 1e22, -0.0, 1.0, True, None, [1.5, {"a": "b"}], "7"]


def hostile(row: RolloutRow, number: int) -> RolloutRow:
    """Puts a text wherever a rollout has one."""
    text = TEXTS[number % len(TEXTS)]
    prompt = [{"role": text, "content": text}, {"role": "user", "content": text}]
    said = [{"role": "assistant", "content": text}, {"role": text, "content": text, text: text}]
    turns = [*said, {"role": "assistant", "content": text, "tool_calls": [{"function": {"name": text}}]}]
    several = number % 3 == 0
    return replace(
        row,
        prompt=json.dumps(prompt),
        completion=text,
        columns=json.dumps({text: text, "answer": NUMBERS[number % len(NUMBERS)], "text": text}),
        messages=json.dumps(turns) if several else None,
        info=json.dumps({text: text, "failure": text, "rewards": [0.5]}) if several else None,
        finish_reason="error" if several and number % 2 else "stop",
        outcomes={
            "proximity": ("score", (number % 7) / 3 + 1e-17, text),
            TEXTS[0]: ("failure" if number % 5 == 0 else "score", None if number % 5 == 0 else 0.1, text),
        },
        env=TEXTS[number % 3],
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    name = "<img src=x onerror=attacked()>"
    plain = dict.fromkeys(TEXTS, "value") | {f"key {number}": text for number, text in enumerate(TEXTS)}
    run = made_run(folder / name, steps=2, groups=GROUPS, members=MEMBERS, change=hostile, other=plain)
    for text in TEXTS[:40]:
        append_metrics(run, {"step": 3, f"rewards/{text}/mean": 0.5, f"canaries/{text}/drift": 0.5, text: 1.0})
    return write_report([run.path], folder / "run.html", limit=30_000_000).path


INERT = """() => {
  const own = new Set(("html head meta title link style body noscript script div main nav a button header h1 h2 h3 p " +
    "span small b i dl dt dd section ol li svg line circle path g text clipPath rect figure figcaption output " +
    "label input table thead tbody tr th td caption form select option details summary pre article dialog kbd " +
    "del ins mark").split(" "));
  const wrong = [...document.querySelectorAll("*")].filter((node) => !own.has(node.localName) ||
    [...node.attributes].some(({ name, value }) => name.startsWith("on") || /^\\s*javascript:/i.test(value)) ||
    (node.localName === "a" && !node.getAttribute("href").startsWith("#")));
  return wrong.map((node) => node.outerHTML.slice(0, 200));
}"""


def test_no_text_of_a_run_becomes_anything_but_text_in_any_view(report: Path, opened: Opened) -> None:
    page = opened(report)
    assert page.locator("h1").inner_text() == "<img src=x onerror=attacked()>"
    assert page.evaluate(INERT) == []
    for fragment in ("#settings", "#rollouts?failed=any", "#rollouts?q=attacked"):
        page.evaluate(f"location.hash = {fragment!r}")
        page.wait_for_timeout(300)
        assert page.evaluate(INERT) == []


def test_every_rollout_is_shown_as_it_is(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=1&at=1.0")
    for number, text in enumerate(TEXTS):
        page.evaluate(f"location.hash = '#rollouts?step=1&at=1.{number}'")
        until(page, f"document.querySelector('.detail h2')?.textContent.endsWith('#{number}')")
        assert page.evaluate(INERT) == [], text
        shown = page.locator(".detail .answer .quoted").first.evaluate("node => node.textContent")
        plain = [character for character in text if character.isprintable() or character in "\n\t"]
        if plain:
            assert "".join(plain)[:200] in shown or not text.isprintable(), text
        else:
            assert shown == "(empty)"


@pytest.mark.parametrize("view", ["&view=group", "&to=1.1", "&to=2.3"])
def test_what_belongs_to_a_rollout_is_text_too(report: Path, opened: Opened, view: str) -> None:
    page = opened(report, "#rollouts?step=1&at=1.0")
    for number in range(0, len(TEXTS), 5):
        page.evaluate(f"location.hash = '#rollouts?step=1&at=1.{number}{view}'")
        page.wait_for_timeout(40)
        assert page.evaluate(INERT) == []


def test_a_regression_case_is_what_shrink_would_print(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=1&at=1.0")
    bound = Host.discover().reward("proximity")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    for number, text in enumerate(TEXTS):
        page.evaluate(f"location.hash = '#rollouts?step=1&at=1.{number}'")
        until(page, f"document.querySelector('.detail h2')?.textContent.endsWith('#{number}')")
        page.evaluate("window.copied = null")
        page.locator("button.case", has_text="proximity").click()
        until(page, "window.copied !== null")
        row: dict[str, Any] = json.loads(hostile(RolloutRow(**EMPTY), number).columns)
        outcome = Outcome("score", (number % 7) / 3 + 1e-17)
        assert page.evaluate("window.copied") == case_text(bound, Completion(text, row=row), [text], [outcome])


def test_nothing_of_a_record_leaves_the_place_that_a_case_gives_it(chromium: Browser) -> None:
    """Neither a reason over several lines nor columns that are no JSON become code of who copies the case."""
    page = chromium.new_page()
    module = (Path(grpo.core.report.__file__).with_name("page") / "python.js").read_text("utf-8")
    page.add_script_tag(content=f"{module}\nwindow.caseText = caseText;", type="module")
    told = {"columns": '{"answer": __import__("os").getcwd()}', "reason": "broke\nimport os\rimport sys\x0cimport re"}
    copied = page.evaluate("told => caseText(null, told.columns, ['x'], [['failure', null, told.reason]])", told)
    called = ast.parse(copied, mode="eval").body
    assert isinstance(called, ast.Call)
    assert not [node for node in ast.walk(called) if isinstance(node, ast.Call) and node is not called]
    assert ast.unparse(called) == "Case('x', row={}, expect=...)"


EMPTY: dict[str, Any] = {
    "step": 1,
    "group": 0,
    "prompt": "[]",
    "completion": "",
    "tokens": 0,
    "finish_reason": "stop",
    "columns": "{}",
    "reward": None,
    "advantage": 0.0,
    "outcomes": {},
}
