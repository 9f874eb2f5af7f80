"""Finishes the directory of a run that ended after its model was written and before it was noted as done.

The model is the last thing that a run makes, and appears whole. So what such a run lacks is made from its record.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from grpo.core.record.checkpoint import COMPLETE, seal
from grpo.core.record.run_dir import RunDir, read_json, read_metrics, write_json

DONE = "done"


def finish(run_dir: RunDir, warned: Callable[[str], None]) -> bool:
    """Seals the model of a run, draws its curves and notes that it is done.

    Args:
        run_dir: that has its model.
        warned: is told of curves that cannot be drawn.

    Returns:
        False where the run was noted as done already, and nothing was changed.
    """
    state = read_json(run_dir.state)
    if isinstance(state, dict) and state.get("status") == DONE:
        return False
    if not (run_dir.model / COMPLETE).is_file():
        seal(run_dir.model)
    draw_curves(run_dir, warned)
    rows = read_metrics(run_dir)
    write_state(run_dir, DONE, int(rows[-1]["step"]) if rows else 0)
    return True


def draw_curves(run_dir: RunDir, warned: Callable[[str], None]) -> None:
    """Draws reward.png; a run that is over is not a failed one because its picture is."""
    try:
        from grpo.core.display.plot import plot_metrics

        plot_metrics(read_metrics(run_dir), run_dir.plot)
    except Exception as error:
        warned(f"{run_dir.plot} could not be drawn: {type(error).__name__}: {error}")


def write_state(run_dir: RunDir, status: str, step: int) -> None:
    """Notes how a run is doing, and since when."""
    write_json(run_dir.state, {"status": status, "step": step, "updated": time.strftime("%Y-%m-%d %H:%M:%S")})
