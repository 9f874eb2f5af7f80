"""Draws the curves of a run. In: rows of metrics. Out: a PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo.core.env_metrics import PREFIX
from grpo.core.record import whole_file

WINDOW = 5  # steps that the bold line averages


def plot_metrics(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws reward, accuracy, each reward's mean and completion length over steps.

    Args:
        rows: of metrics.jsonl.
        path: the PNG to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"text.parse_math": False}):  # a dollar sign in a reward's name begins no formula
        figure = _figure(pyplot, rows)
        with whole_file(path) as unfinished:
            figure.savefig(unfinished, format="png", dpi=110)
        pyplot.close(figure)


def _figure(pyplot: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    names = sorted({key.split("/")[1] for row in rows for key in row if key.startswith("rewards/")})
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 6.5), constrained_layout=True)
    _curve(axes[0][0], rows, "reward", "reward (weighted total)")
    _curve(axes[0][1], rows, "accuracy", "accuracy")
    held_out = [(row["step"], row["held_out/accuracy"]) for row in rows if row.get("held_out/accuracy") is not None]
    if held_out:
        axes[0][1].plot(*zip(*held_out, strict=True), "o-", color="tab:green", label="held out, greedy")
    axes[0][1].set_ylim(0, 1.02)
    for name in names:
        _curve(axes[1][0], rows, f"rewards/{name}/mean", name, faint=False)
    axes[1][0].set_title("each reward")
    for key in dict.fromkeys(key for row in rows for key in row if key.startswith(PREFIX)):
        _, name, what = key.split("/", 2)
        if what in ("reward", "accuracy") and any(row.get(key) is not None for row in rows):
            _curve(axes[0][int(what == "accuracy")], rows, key, name, faint=False)
    _curve(axes[1][1], rows, "completions/mean_length", "completion length (tokens)")
    for axis in axes.flat:
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    return figure


def _curve(axis: Any, rows: Sequence[Mapping[str, Any]], key: str, label: str, *, faint: bool = True) -> None:
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    if not points:
        axis.set_title(f"{label}: not measured")
        return
    steps, values = zip(*points, strict=True)
    smooth = [
        sum(values[max(0, i - WINDOW + 1) : i + 1]) / (i + 1 - max(0, i - WINDOW + 1)) for i in range(len(values))
    ]
    if faint:
        axis.plot(steps, values, alpha=0.3, color="tab:blue")
        axis.set_title(label)
    axis.plot(steps, smooth, label=f"{label.partition(' (')[0]}, mean of {WINDOW}" if faint else label)
