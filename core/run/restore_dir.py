"""Makes the directory of a run again that was removed while the run goes on, and asks for a checkpoint then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from grpo.core.record.checkpoint import newest_step
from grpo.core.record.run_dir import Hold, RunDir, whole_file
from grpo.core.train.part import Part

if TYPE_CHECKING:
    from grpo.core.train.batch.batch import Batch


class RunDirRestorer(Part):
    """Looks after one run directory, for its first process."""

    def __init__(self, run_dir: RunDir, hold: Hold, warned: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._hold = hold
        self._warned = warned
        self._kept = {file: file.read_bytes() for file in (run_dir.versions, run_dir.config)}
        self._removed = False

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Looks at the directory before the batch is written to it."""
        self.look()
        return {}

    def unsaved(self) -> bool:
        """Looks again; returns whether the checkpoints were removed and no other has been written since."""
        self.look()
        return self._removed and newest_step(self._run_dir) == 0

    def look(self) -> None:
        """Makes the directory again where it is gone, or part of it. Raises OSError if it cannot be made."""
        folders = [self._run_dir.rollouts, self._run_dir.checkpoints]
        if all(file.is_file() for file in self._kept) and all(folder.is_dir() for folder in folders):
            return
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for file, content in self._kept.items():
            with whole_file(file) as unfinished:
                unfinished.write_bytes(content)
        self._hold.renew()
        self._removed = True
        self._warned(
            f"{self._run_dir.path} was removed during the run. Its records so far are lost. It was created again, and "
            "a checkpoint follows after this step. To end the run, press Ctrl-C."
        )
