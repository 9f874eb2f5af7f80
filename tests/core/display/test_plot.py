"""The curves: a picture of whatever was measured, from nothing to everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.display.plot import curves, plot_metrics


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"step": 0, "held_out/accuracy": 0.4}],
        [{"step": 4, "held_out/accuracy": 0.4, "held_out/accuracy_low": 0.3, "held_out/accuracy_high": 0.5}],
        [{"step": 1, "reward": None, "rewards/near/mean": None}],
        [
            {
                "step": step,
                "reward": 0.1 * step,
                "accuracy": 0.5,
                "rewards/a$\\b^$_/mean": 1.0,
                "completions/mean_length": 9.0,
            }
            for step in range(1, 9)
        ],
    ],
    ids=["nothing", "start-only", "interval", "no-means", "a-run"],
)
def test_whatever_was_measured_is_drawn(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    plot_metrics(rows, tmp_path / "reward.png")
    width, height = png_size(tmp_path / "reward.png")
    assert width > 900
    assert height > 600
    assert [path.name for path in tmp_path.iterdir()] == ["reward.png"]


def test_more_measurements_make_another_picture(tmp_path: Path) -> None:
    plot_metrics([{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.3}], tmp_path / "one.png")
    plot_metrics([{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.2}], tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()


def test_a_name_that_begins_with_an_underscore_is_in_the_legend() -> None:
    rows = [{"step": step, "rewards/_near/mean": 0.1, "rewards/far/mean": 0.2} for step in (1, 2)]
    legends = [axis.get_legend() for axis in curves(rows).axes]
    [each] = [[text.get_text().strip() for text in legend.get_texts()] for legend in legends if legend is not None]
    assert each == ["_near", "far"]
