"""What a reader sees, at the widths of a telephone, a tablet and a desk, light and dark: pictures to look at.

They are kept in build/screenshots, or in the folder that GRPO_SCREENSHOTS names. The tests hold what a picture shows at
one glance: nothing runs over the edge, and light and dark are not the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from made_run import failed, made_run

from grpo.core.record.run_dir import RolloutRow
from grpo.core.report.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
Opened = Callable[..., "Page"]
FOLDER = Path(os.environ.get("GRPO_SCREENSHOTS", Path(__file__).parents[3] / "build" / "screenshots"))
VIEWS = {"overview": "", "rollouts": "#rollouts?step=20&at=20.1", "settings": "#settings"}
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"


def with_a_failure(row: RolloutRow, number: int) -> RolloutRow:
    return failed(row, "ValueError: no number") if row.step == 2 and number == 5 else row


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = [made_run(folder / name, steps=20, groups=4, change=with_a_failure) for name in ("pens", "pencils")]
    return write_report([run.path for run in runs], folder / "run.html", limit=30_000_000).path


@pytest.mark.parametrize("width", [400, 900, 1400])
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_runs_over_the_edge_and_dark_is_dark(report: Path, opened: Opened, view: str, width: int) -> None:
    light: dict[str, int] = {}
    for scheme in ("light", "dark"):
        page = opened(report, VIEWS[view], width=width, color_scheme=scheme)
        page.wait_for_load_state("networkidle")
        FOLDER.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=FOLDER / f"{view}-{width}-{scheme}.png", full_page=view != "rollouts")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        light[scheme] = sum(int(part) for part in re.findall(r"\d+", page.evaluate(BACKGROUND))[:3])
    assert light["dark"] < 300 < 600 < light["light"]
