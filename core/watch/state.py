"""Holds what a page of `grpo watch` shows: the newest state of runs and blocks of their rollouts.

A state is figures, curves, alarms, and the list of blocks, which are made when a page asks for them, texts from the
file of their step. A block of texts stays valid as long as a run only goes on. Columns of numbers are of one state;
those of the state before are kept for pages that are being drawn.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from grpo.core.record.run_dir import RunDir, read_rollouts
from grpo.core.record.trained import read_trained
from grpo.core.report.alarms import Alarm
from grpo.core.report.blocks import BLOCK_SIZE, PackedRollouts, pack_texts, packed, packed_json
from grpo.core.report.report import names_of
from grpo.core.report.scan import Scan
from grpo.core.report.summary import cases_of, rollouts_summary, summary_of
from grpo.core.report.tokens import RunTokenizer
from grpo.core.watch.followed import FollowedRun

PATIENCE = 2.0  # seconds of reading until a page is told what there is so far
STATES = 2  # whose columns are kept


@dataclass(frozen=True, slots=True)
class State:
    """Runs as they were at one moment."""

    version: str  # another one whenever something of the runs changed, or more of them was read
    summary: str  # the block that the page begins with
    waiting: int


@dataclass(slots=True)
class _Blocks:
    """The bounds of the blocks of texts of a run; none has rollouts of two steps."""

    reading: int
    scan: Scan
    starts: list[int] = field(default_factory=list)  # the place of the first rollout of each block
    known: int = 0
    _size: int = 0

    def more(self) -> None:
        steps = self.scan.step
        for place in range(self.known, len(self.scan)):
            if place == 0 or steps[place] != steps[place - 1] or self._size >= BLOCK_SIZE:
                self.starts.append(place)
                self._size = 0
            self._size += self.scan.size[place]
        self.known = len(self.scan)

    def texts(self, number: int, tokenizer: RunTokenizer) -> str | None:
        first = self.starts[number]
        end = self.starts[number + 1] if number + 1 < len(self.starts) else self.known
        step, numbers = self.scan.step[first], self.scan.number[first:end]
        rows, trained = read_rollouts(self.scan.run, step), read_trained(self.scan.run, step)
        if len(rows) <= numbers[-1]:
            return None
        return pack_texts([(rows[own], trained.get(own)) for own in numbers], tokenizer, self.scan.rewards)


class _Watched:
    def __init__(self, run: RunDir) -> None:
        self.followed = FollowedRun(run)
        self.cases = cases_of(self.followed.versions)
        self.tokenizer = RunTokenizer(run)
        self.blocks = _Blocks(self.followed.shown.number, self.followed.shown.scan)

    def renew(self, seconds: float) -> None:
        self.followed.renew(seconds)
        if self.tokenizer.missing is not None:
            self.tokenizer = RunTokenizer(self.followed.run)
        if self.followed.shown.number != self.blocks.reading:
            self.blocks = _Blocks(self.followed.shown.number, self.followed.shown.scan)
        self.blocks.more()


class WatchedRuns:
    """The runs of one page. Raises UsageError for no run, or a damaged file."""

    def __init__(self, runs: Sequence[RunDir]) -> None:
        self._names = names_of([run.path for run in runs])
        self._runs = [_Watched(run) for run in runs]
        self._reading = threading.Lock()
        self._packing = threading.Lock()
        self._state: State | None = None
        self._columns: OrderedDict[str, list[str]] = OrderedDict()  # by version, of each run

    @property
    def unchanged(self) -> bool:
        """True while the newest state is still what there is."""
        return self._state is not None and all(run.followed.unchanged for run in self._runs)

    def state(self) -> State:
        """Returns the newest state, after some reading at most. Raises UsageError: gone, or a damaged file."""
        with self._reading:
            if self._state is None or not self.unchanged:
                for run in self._runs:
                    run.renew(PATIENCE / len(self._runs))
                self._state = self._made()
            return self._state

    def block(self, name: str, version: str) -> str | None:
        """Returns a block of the state `version`, None if outdated. Raises UsageError for a damaged file."""
        run, _, what = name.removeprefix("run").partition("-")
        if not run.isdecimal() or int(run) >= len(self._runs):
            return None
        if what == "index":
            columns = self._columns.get(version)
            return None if columns is None else columns[int(run)]
        blocks, number = self._runs[int(run)].blocks, what.removeprefix("texts")
        if not version.startswith(f"{self._era}-") or not number.isdecimal() or int(number) >= len(blocks.starts):
            return None
        with self._packing:  # a tokenizer is no two threads'
            return blocks.texts(int(number), self._runs[int(run)].tokenizer)

    @property
    def _era(self) -> str:
        return ".".join(str(run.blocks.reading) for run in self._runs)

    def _made(self) -> State:
        summaries, columns = [], []
        for name, run in zip(self._names, self._runs, strict=True):
            followed, shown = run.followed, run.followed.shown
            kinds, data = shown.index.written()
            index = packed(data)
            rollouts = PackedRollouts(shown.index.count, kinds, index, run.blocks.starts, ())
            alarms = [*followed.alarms, *(Alarm(followed.line.step, "state", text) for text in shown.problems)]
            metrics = [*shown.metrics]
            about = summary_of(name, followed.line, followed.config, followed.versions, metrics, alarms)
            summaries.append({**about, **rollouts_summary(shown.scan, rollouts, run.cases, run.tokenizer.missing)})
            columns.append(index)
        summary = packed_json({"runs": summaries})
        digest = hashlib.blake2b("".join([summary, *columns]).encode(), digest_size=12).hexdigest()
        version = f"{self._era}-{digest}"
        self._columns[version] = columns
        while len(self._columns) > STATES:
            self._columns.popitem(last=False)
        return State(version, summary, sum(run.followed.waiting for run in self._runs))
