"""The pages by the rules of accessibility that axe knows: names, contrast, roles and structure, in light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from made_run import failed, made_run

from grpo.core.record.labels import Labels, write_labels
from grpo.core.record.run_dir import RolloutRow
from grpo.core.watch.folder import WatchedFolder
from grpo.core.watch.server import WatchServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


def with_a_failure(row: RolloutRow, number: int) -> RolloutRow:
    return failed(row, "ValueError: no number") if row.step == 2 and number == 5 else row


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchServer]:
    folder = tmp_path_factory.mktemp("runs")
    run = made_run(folder / "pens", steps=5, change=with_a_failure)
    write_labels(run, Labels(("best",), "a note", False))
    write_labels(made_run(folder / "hidden", steps=1), Labels(hidden=True))
    made_run(folder / "other", steps=3, train={"steps": 3, "dtype": "float32", "lr": 1e-06})
    with WatchServer(WatchedFolder(folder), 0, edit=True) as server:
        yield server


def complaints(page: Page) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response
    assert len(found["passes"]) > 20, "axe did not run"
    return [f"{one['id']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("", "tbody tr"),
        ("report?run=pens&run=other", ".chart"),
        ("report?run=pens#rollouts?at=2.5", ".detail .rollout"),
        ("report?run=pens#rollouts?at=3.1&view=group", ".cards .card"),
        ("report?run=pens#rollouts?at=3.1&to=3.0", ".answer del"),
        ("report?run=pens&run=other#settings", "table.values"),
    ],
)
def test_axe_finds_nothing(chromium: Browser, server: WatchServer, scheme: str, asked: str, shown: str) -> None:
    # Its script is none that the policy of a page admits.
    context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
    try:
        page = context.new_page()
        page.goto(f"{server.link}{asked}")
        page.wait_for_selector(shown)
        assert complaints(page) == []
        page.set_viewport_size({"width": 400, "height": 900})
        assert complaints(page) == []
        if not asked:
            page.get_by_label("hidden ones too").check()
            page.get_by_role("button", name="Label pens").click()
            assert complaints(page) == []
    finally:
        context.close()
