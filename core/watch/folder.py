"""Lists the runs of a folder for `grpo watch` and applies changes; any name but a run's in it is refused."""

from __future__ import annotations

import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo.core.record.labels import labels_of, read_labels, write_labels
from grpo.core.record.list import RunLine, list_runs
from grpo.core.record.run_dir import RunDir, exclusive, is_run, read_state
from grpo.core.watch.followed import stamp
from grpo.core.watch.state import WatchedRuns
from grpo.plugins.errors import UsageError

KEPT = 4  # pages whose runs stay in memory
LATELY = 600  # seconds without a word after which a run elsewhere counts as gone
DELETED = ".deleted-{}"  # a run on its way out; no list has it


class WatchedFolder:
    """A folder of runs, or one run. Raises UsageError if there is no such folder."""

    def __init__(self, path: Path) -> None:
        list_runs(path)
        self._path = path.absolute()
        self._watched: OrderedDict[tuple[object, ...], WatchedRuns] = OrderedDict()
        self._opening = threading.Lock()

    @property
    def alone(self) -> str | None:
        """The name of the run where one run is watched, else None."""
        return self._path.name if is_run(self._path) else None

    def lines(self) -> list[dict[str, Any]]:
        """Returns the list's row of each run, oldest first, as JSON can hold it."""
        return [_run_as_json(line) for line in list_runs(self._path)]

    def watched(self, names: Sequence[str]) -> WatchedRuns:
        """Returns what a page of some runs holds. Raises UsageError for no such run, or a damaged file."""
        runs = [self._run(name) for name in names]
        with self._opening:
            key = tuple((run.path, stamp(run.config), stamp(run.versions)) for run in runs)
            if key not in self._watched:
                self._watched[key] = WatchedRuns(runs)
            self._watched.move_to_end(key)
            while len(self._watched) > KEPT:
                self._watched.popitem(last=False)
            return self._watched[key]

    def label(self, name: str, value: Any) -> None:
        """Gives a run other labels. Raises UsageError for no such run, or invalid labels."""
        write_labels(self._run(name), labels_of(value))

    def delete(self, name: str, confirmed: str) -> None:
        """Removes a run that no process works on, here or, as far as its files tell, on another machine.

        `confirmed`: what the reader typed, which has to be the name. Raises UsageError if it was not confirmed, is in
        use, or cannot be removed.
        """
        run = self._run(name)
        if confirmed != name:
            raise UsageError(f"'{name}' was not deleted: its name was not typed to confirm it.")
        stamps = [last[0] / 1e9 for file in (run.config, run.state, run.metrics) if (last := stamp(file))]
        quiet = time.time() - max(stamps)
        if read_state(run).get("status") == "running" and quiet < LATELY:
            raise UsageError(
                f"'{name}' was written to {quiet:.0f} s ago: on a shared disk it may be running on another machine. "
                f"Stop it there, or wait until it has been quiet for {LATELY // 60} minutes."
            )
        if run.path.is_symlink():
            raise UsageError(f"'{name}' is a link to a run elsewhere. Delete that one there, and then the link.")
        gone = run.path.with_name(DELETED.format(name))
        try:
            with exclusive(run):
                run.path.rename(gone)  # at once, so that nobody finds half a run
                (gone / "config.json").unlink()  # and what may be left of it is none
            shutil.rmtree(gone)
        except OSError as error:
            raise UsageError(f"cannot delete '{name}': {error.strerror}. What is left is in {gone}.") from None

    def _run(self, name: str) -> RunDir:
        path = self._path if name == self.alone else self._path / name
        inside = name == self.alone or (name == Path(name).name and not name.startswith("."))
        if not (inside and self._path.is_dir() and is_run(path)):
            raise UsageError(f"there is no run '{name}' in {self._path} any more.")
        return RunDir(path)


def _run_as_json(line: RunLine) -> dict[str, Any]:
    values = {key: None if value != value else value for key, value in asdict(line).items()}  # JSON has no NaN
    return {**values, "path": str(line.path), "name": line.path.name, **asdict(read_labels(RunDir(line.path)))}
