"""Declares the hooks of a part of a run: for each batch and each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grpo.plugins.errors import RunError

if TYPE_CHECKING:  # the report reads the watches that are parts, without torch
    from grpo.core.train.batch.batch import Batch


class StoppedForGood(RunError):
    """Raised by a part that would stop the run again at the same step, so resuming it unchanged leads nowhere."""


class Part:
    """A part of a run that looks at its batches and steps. Parts do not know the job, which calls them in order."""

    def on_batch(self, batch: Batch) -> Mapping[str, float]:
        """Handles a scored batch of all processes, before it trains; returns metrics of its step."""
        return {}

    def on_step(self, row: Mapping[str, Any]) -> None:
        """Handles the metrics of a step that ended, on the first process."""

    def close(self) -> None:
        """Releases the part's resources; called however the run ends."""
