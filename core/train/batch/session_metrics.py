"""Computes the metrics of a step's episodes with sessions: zeros, the time that machines took, the load."""

from __future__ import annotations

import os
from collections.abc import Sequence

from grpo.core.text.stats import mean
from grpo.plugins.session import MACHINE_SECONDS
from grpo.plugins.types import Completion


def session_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    """Returns means over the episodes whose environment says how long their machine took; nothing where there is none.

    The load is that of the last minute on this machine, for each of its cores.
    """
    graded = [each.info for each in completions if isinstance(each.info.get(MACHINE_SECONDS), int | float)]
    if not graded:
        return {}
    return {
        "sessions/zeros": mean([not any(info.get("rewards") or ()) for info in graded]),
        "time/sessions": mean([info[MACHINE_SECONDS] for info in graded]),
        "time/load": os.getloadavg()[0] / (os.cpu_count() or 1),
    }
