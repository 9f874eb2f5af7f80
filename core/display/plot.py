"""Draws the curves of a run as a figure of four panels (Okabe and Ito's colours), without the user's pyplot."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from grpo.core.record.run_dir import whole_file
from grpo.core.train.batch.env_metrics import HELD_OUT, HELD_OUT_HIGH, HELD_OUT_LOW, PREFIX

WINDOW = 5  # steps that the bold line averages
FEW = 8  # points that are marked one by one, since a line of one would not be seen
WHOLE, HELD = "#0072B2", "#D55E00"
COLOURS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6BB1", "#999933", "#882255")
MARGINS = {"left": 0.11, "right": 0.985, "top": 0.95, "bottom": 0.09, "hspace": 0.4, "wspace": 0.25}
"""Shares of the picture and of its panels, fixed: to have them worked out takes as long as the drawing."""
STYLES = ("-", "--", "-.", ":")  # one for each round through the colours
PRINT_DPI, SCREEN_DPI = 160, 100
STYLE = Path(__file__).with_name("plot.mplstyle")  # a dollar sign in a reward's name begins no formula there


class Curves(Figure):
    """A figure that a notebook shows, with any backend of pyplot and with none."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=SCREEN_DPI)
        return picture.getvalue()


def plot_metrics(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    figure = curves(rows)
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=PRINT_DPI)


def curves(rows: Sequence[Mapping[str, Any]]) -> Curves:
    """Draws reward, accuracy, each reward's mean (of a single one, the entropy) and completion length over steps."""
    with matplotlib.rc_context(matplotlib.rc_params_from_file(STYLE, use_default_template=False)):
        return _drawn(rows)


def _drawn(rows: Sequence[Mapping[str, Any]]) -> Curves:
    figure = Curves(figsize=(8, 5.4))
    (reward, accuracy), (parts, length) = figure.subplots(2, 2, gridspec_kw=MARGINS)
    names = sorted({key.split("/")[1] for row in rows for key in row if key.startswith("rewards/")})
    several = len({key.split("/")[1] for row in rows for key in row if key.startswith(PREFIX)}) > 1
    _panel(reward, "Reward", "weighted total")
    _curve(reward, rows, "reward", f"all, mean of {WINDOW} steps" if several else f"mean of {WINDOW} steps", WHOLE)
    _panel(accuracy, "Accuracy", "share of right answers")
    _curve(accuracy, rows, "accuracy", f"sampled, mean of {WINDOW} steps", WHOLE)
    _each_env(reward, rows, "reward")
    _each_env(accuracy, rows, "accuracy")
    _held_out(accuracy, rows)
    accuracy.set_ylim(0, 1.03)
    if len(names) == 1:
        _panel(parts, "Entropy", "nats per token")
        _curve(parts, rows, "entropy", f"mean of {WINDOW} steps", WHOLE)
    else:
        _panel(parts, "Each reward", f"score, mean of {WINDOW} steps")
        for number, name in enumerate(names):
            _curve(parts, rows, f"rewards/{name}/mean", name, *_look(number), faint=False)
    _panel(length, "Completion length", "tokens")
    _curve(length, rows, "completions/mean_length", f"mean of {WINDOW} steps", WHOLE)
    for axis in (reward, accuracy, parts, length):
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="best")
        else:
            axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", va="center", color="#777777")
    return figure


def _panel(axis: Any, title: str, unit: str) -> None:
    axis.set_title(title)
    axis.set_ylabel(unit)
    axis.set_xlabel("optimizer step")
    axis.xaxis.get_major_locator().set_params(integer=True)


def _each_env(axis: Any, rows: Sequence[Mapping[str, Any]], what: str) -> None:
    keys = dict.fromkeys(key for row in rows for key in row if key.startswith(PREFIX))
    drawn = [key for key in keys if key.split("/", 2)[2] == what and any(row.get(key) is not None for row in rows)]
    for number, key in enumerate(drawn):
        _curve(axis, rows, key, key.split("/", 2)[1], *_look(number), faint=False)


def _held_out(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    evaluated = [row for row in rows if row.get(HELD_OUT) is not None]
    if not evaluated:
        return
    steps, means = [row["step"] for row in evaluated], [row[HELD_OUT] for row in evaluated]
    ends = [(row.get(HELD_OUT_LOW), row.get(HELD_OUT_HIGH)) for row in evaluated]
    known = all(low is not None and high is not None for low, high in ends)
    reach = None
    if known:
        reach = [[mean - low for mean, (low, _) in zip(means, ends, strict=True)]]
        reach += [[high - mean for mean, (_, high) in zip(means, ends, strict=True)]]
    label = "held out, greedy, 95% interval" if known else "held out, greedy"
    axis.errorbar(steps, means, yerr=reach, fmt="o-", color=HELD, capsize=2.5, elinewidth=1, label=label, zorder=3)


def _curve(
    axis: Any,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    label: str,
    colour: str,
    style: str = "-",
    *,
    faint: bool = True,
) -> None:
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    if not points:
        return
    steps, values = zip(*points, strict=True)
    windows = [values[max(0, end - WINDOW) : end] for end in range(1, len(values) + 1)]
    if faint:
        axis.plot(steps, values, color=colour, alpha=0.25, linewidth=1)
    marker = "o" if len(points) < FEW else None
    label = f" {label}" if label.startswith("_") else label  # matplotlib leaves such a label out of the legend
    axis.plot(steps, [sum(window) / len(window) for window in windows], style, color=colour, label=label, marker=marker)


def _look(number: int) -> tuple[str, str]:
    """Returns the colour and the line of a series, different for 32 of them."""
    return COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
