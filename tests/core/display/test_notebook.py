"""A run below a notebook's cell: the example as Jupyter executes it, stopped and resumed, and what the panel shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import executed_notebook
import pytest
from patience import RUN

from grpo.core.config.schema import parse_config
from grpo.core.display.html import block, table
from grpo.core.display.notebook import NotebookPanel
from grpo.core.planning.decide import make_plan
from grpo.core.timing.forecast import Forecast, Range
from grpo.plugins.host import Host

EXAMPLE = Path(__file__).parents[3] / "examples" / "notebook" / "first_reward.ipynb"
TRAINS = "run = grpo.train("
pytestmark = pytest.mark.slow


def executed(folder: Path, *stop: str) -> dict[str, list[dict[str, Any]]]:
    """Executes the example in a folder; returns the first line of each cell with its outputs."""
    for name in (".jupyter", "runtime"):
        (folder / name).mkdir()
    places = {name: str(folder / ".jupyter") for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    # A short path, as sockets have.
    environment = {**os.environ, **places, "OMP_NUM_THREADS": "1", "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    command = [sys.executable, executed_notebook.__file__, str(EXAMPLE), str(folder), str(folder / "out.ipynb"), *stop]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN, check=False)
    assert done.returncode == 0, done.stderr
    cells = json.loads((folder / "out.ipynb").read_text())["cells"]
    return {"".join(cell["source"]).splitlines()[0]: cell.get("outputs", []) for cell in cells}


def shown(outputs: list[dict[str, Any]], kind: str = "text/plain") -> str:
    """What a cell shows, its data of one kind and its streams together."""
    return "\n".join("".join(output.get("text") or output.get("data", {}).get(kind, "")) for output in outputs)


def trained(cells: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    (outputs,) = (outputs for line, outputs in cells.items() if line.startswith(TRAINS))
    return outputs


@pytest.mark.nightly
def test_the_example_trains_and_shows_what_it_says(tmp_path: Path) -> None:
    cells = executed(tmp_path)
    (panel,) = trained(cells)  # one output, updated in place, and no noise of libraries
    assert shown([panel]) == "done after 10 steps"
    assert "held-out accuracy: " in shown([panel], "text/html")
    assert "status done, step 10 of 10" in shown(cells['if run.status == "interrupted":'])


@pytest.mark.nightly
def test_a_cell_that_is_stopped_leaves_a_run_that_the_next_cell_resumes(tmp_path: Path) -> None:
    cells = executed(tmp_path, "--stop", TRAINS, "3")
    assert "all hold" in shown(cells["print(grpo.check_reward(near))"])
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "config.json").read_text())["rewards"] == ["__main__/near"]
    panel, *more = trained(cells)[::-1]
    assert "stopped after " in shown([panel, *more])
    assert f"grpo.train(resume=&#x27;runs/{run.name}&#x27;, rewards=[near])" in shown([panel, *more], "text/html")
    assert "status done, step 10 of 10" in shown(cells['if run.status == "interrupted":'])
    assert "resuming after step " in shown(cells['if run.status == "interrupted":'], "text/html")
    assert shown(cells["run.plot()"], "image/png")
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()] == list(range(11))


class Drawn(NotebookPanel):
    """A panel whose page is kept and not shown, for there is no kernel here."""

    page = ""

    def _draw(self) -> None:
        self._handle, self.page = self, self._html()


def test_a_panel_says_that_a_dry_run_is_over_and_that_a_run_failed() -> None:
    config = parse_config({"env": "gsm8k:size=20", "rewards": ["proximity"], "train": {"steps": 4}})
    plan = make_plan(config, Host.discover(), served=False)
    dry = Drawn()
    dry.planned(plan, None, ["dry run: nothing was trained"])
    dry.close()
    assert dry.page.count("dry run: nothing was trained") == 1
    assert "planning" not in dry.page
    failed = Drawn()
    failed.planned(plan, Path("runs/a"), [])
    failed.stepped({"step": 2, "reward": 1.0}, None, {})
    failed.foreseen(Forecast(2, 4, Range(8.0, 9.0), tokens=100.0))
    assert "forecast" in failed.page
    failed.close()
    assert "failed after 2 steps" in failed.page
    assert "forecast" not in failed.page


def test_no_text_of_a_model_is_markup_or_a_formula() -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m $$\\frac$$ \"' &amp;"
    for page in (table([(hostile, hostile)], [hostile, hostile]), table([(hostile, 1.0)]), block(hostile, hostile)):
        assert "<script" not in page
        assert "<img" not in page
        assert "\x1b" not in page
        assert "mathjax_ignore" in page
