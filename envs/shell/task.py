"""Defines a task that is solved in a session, and opens and grades its machines.

A grader's files come into a machine when every process of the episode is dead. By default that is a fresh machine,
which gets only the working directory, without links that lead out of it: no program, setting or daemon that the episode
left elsewhere reaches the grader.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import posixpath
import shutil
import tarfile
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from grpo.plugins.errors import DatasetError, SessionError
from grpo.plugins.session import Exit, Session, SessionJob, SessionLimits, SessionPool

REWARD = "/logs/verifier/reward.txt"
GRADER_HOME = "/tmp/grader"
MOST_FILES, MOST_CARRIED = 20_000, 256 << 20  # of a working directory, and bytes
_LARGE = f"it has more than {MOST_CARRIED >> 20} MiB or {MOST_FILES:,} files"
LIFE = 86_400.0  # seconds of a machine: waiting for the policy is no fault of an episode
MOST_KEPT = 8  # tasks of which what their commands made is kept
SIGNALLED = 128  # a shell adds the number of a signal to it
_SECONDS = 120.0  # for one command that makes a machine, or carries what is in one to another
AROUND = 4 * _SECONDS  # that grading may take beside the grader
_CLEAN = {
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "HOME": GRADER_HOME,
}
"""Variables that keep what the policy left from being read as settings."""

_EMPTIED = f"""\
for folder in /tests /solution /logs {GRADER_HOME}; do
  rm -rf "$folder" || {{ chmod -R u+rwx "$folder"; rm -rf "$folder"; }}
  [ ! -e "$folder" ] || [ -z "$(ls -A "$folder")" ] || exit 1
done 2> /dev/null"""
_UNLINKED = """\
find / /dev/shm -xdev -type l -exec sh -c 'for link do
  [ -e "$link" ] || rm -f "$link" || { chmod u+wx "${link%/*}" && rm -f "$link"; }
done' sh {} + 2> /dev/null
true"""
"""Removes links that lead nowhere while the grader's folders are not there."""


@dataclass(frozen=True, slots=True)
class Script:
    """Something to run in a machine."""

    argv: Sequence[str]  # the program and its arguments
    # path to content and mode; a relative path is below the task's directory
    files: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # its variables
    seconds: float = 20.0  # how long it may take


@dataclass(frozen=True, slots=True)
class SessionTask:
    """A task."""

    name: str  # of the task, unique among those of its environment
    instruction: str  # what is asked
    grader: Script  # what judges; exit status zero is 1.0, any other 0.0
    solution: Script | None = None  # what solves the task, or None
    # path to content and mode, there from the start; a relative path is below the directory
    files: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    # what makes the machine, after the files, each with the directory that it runs in
    commands: Sequence[tuple[Sequence[str], str]] = ()
    directory: str = ""  # where the policy works; "": the session's own working directory
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of every command
    image: str = ""  # what the machine begins with, for sessions that have images
    limits: SessionLimits = field(default_factory=SessionLimits)  # of the machine
    network: bool = False  # whether the policy reaches the network
    hidden: Sequence[str] = ()  # files and folders of this machine with tasks, which no program sees
    in_place: bool = False  # the grader judges the machine in which the task was solved
    # the grader writes a number to the file `REWARD`, which counts in the place of its exit status. Programs of the
    # policy that it runs can write there, too.
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader said."""

    reward: float  # from 0 to 1; what a grader writes beyond counts as the nearest
    reason: str = ""  # why it is 0 where the grader said nothing of its own; "" otherwise
    output: str = ""  # the end of what it printed


def open_machine(pool: SessionPool, task: SessionTask, *, hidden: Sequence[str] = (), **fields: Any) -> Session:
    """Returns a new machine for a task, made by its commands, with further fields of a `SessionJob`.

    Raises DatasetError: a command fails, or the files cannot be written; names the task; SessionLost.
    """
    job = SessionJob(
        task.image,
        network=task.network,
        hidden=[*task.hidden, *hidden],
        environment=task.environment,
        limits=task.limits,
        **fields,
    )
    try:
        machine = pool.open(job)
        try:
            if folders := {task.directory, *(directory for _, directory in task.commands)} - {""}:
                machine.run(["mkdir", "-p", *sorted(folders)])
            place(machine, task, task.files)
            for argv, directory in task.commands:
                done = machine.run(argv, timeout=_SECONDS, directory=directory or machine.directory)
                if done.code != 0:
                    raise DatasetError(
                        f"task '{task.name}': its machine cannot be made here: {' '.join(argv)[:200]!r} "
                        f"{_ended(done)}: {tail_of(done, 300)}"
                    )
        except BaseException:
            machine.close()
            raise
    except SessionError as error:
        raise DatasetError(f"task '{task.name}': {error}") from error
    return machine


def place(machine: Session, task: SessionTask, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Writes files into a machine. Raises SessionError, SessionLost."""
    folder = task.directory or machine.directory
    for path, (content, mode) in files.items():
        machine.write(posixpath.join(folder, path), content, mode=mode)


def run(machine: Session, task: SessionTask, script: Script) -> Exit:
    """Runs a script of a task in its directory. Raises SessionError, SessionLost."""
    place(machine, task, script.files)
    return machine.run(
        script.argv, env=script.environment, timeout=script.seconds, directory=task.directory or machine.directory
    )


def grade(machines: Machines, task: SessionTask, machine: Session) -> Grade:
    """Ends every process of a machine and judges what is in it.

    What the policy did to prevent grading (too large a directory, a full disk, a grader that runs out of time) is 0.0
    and no failure, or it could choose to be left out. Raises SessionLost, which says nothing about the policy;
    DatasetError: the grader's machine cannot be made.
    """
    machine.stop()
    if task.in_place:
        return _graded(task, machine)
    folder = task.directory or machine.directory
    try:
        _refuse_large(machine, folder)
        carried = carry(machine.tar(folder), folder)
    except (SessionError, tarfile.TarError, TooLarge) as error:
        return Grade(0.0, f"the working directory cannot be carried to the grader: {error}")
    with carried:
        fresh = machines.open(task)
        try:
            emptied = fresh.run(["find", folder, "-mindepth", "1", "-delete"])
            unpacked = _unpacked(fresh, folder, carried)
            if emptied.code != 0 or unpacked != 0:
                return Grade(0.0, f"the working directory cannot be unpacked: tar ended with status {unpacked}")
            return _graded(task, fresh)
        finally:
            fresh.close()


def _refuse_large(machine: Session, folder: str) -> None:
    """Raises TooLarge for files of too many bytes; those with holes take less room here than in an archive."""
    sizes = ["-exec", "stat", "-c", "%i %s", "{}", "+"]
    done = machine.run(["find", folder, "-xdev", "-type", "f", *sizes], timeout=_SECONDS)
    if done.code != 0:
        raise TooLarge(
            f"its files cannot be listed: find {_ended(done)}: {done.stderr.decode(errors='replace')[-300:]}"
        )
    try:  # the machine's own programs may print anything
        sizes_by_file = dict(line.split() for line in done.stdout.splitlines())
        size = sum(map(int, sizes_by_file.values()))
    except ValueError as error:
        raise TooLarge("its files cannot be listed: stat printed no sizes") from error
    if done.omitted or size > MOST_CARRIED:
        raise TooLarge(_LARGE)


def _unpacked(machine: Session, folder: str, archive: BinaryIO) -> int | None:
    """The exit status of tar; None if it does not end. Raises SessionLost."""
    process = machine.start(["sh", "-c", 'exec tar -x -C "$0" 2> /dev/null', folder])
    try:
        with contextlib.suppress(OSError):  # it has ended: its status says why
            shutil.copyfileobj(archive, process.stdin)
        process.stdin.close()
        return process.wait(_SECONDS)
    finally:
        process.close()


class TooLarge(Exception):
    """A directory holds more than its machine may."""


def carry(archive: BinaryIO, folder: str) -> BinaryIO:
    """Returns an archive, a file on disk, of the files, folders and inner links of a directory, whose path is `folder`.

    Raises TooLarge: more than `MOST_CARRIED` bytes or `MOST_FILES` entries; tarfile.TarError: it is broken.
    """
    kept = tempfile.TemporaryFile()  # noqa: SIM115  # on the disk: many episodes are graded at once
    try:
        with archive, tarfile.open(fileobj=archive, mode="r|") as given, tarfile.open(fileobj=kept, mode="w") as result:
            _keep(given, result, folder)
    except BaseException:
        kept.close()
        raise
    kept.seek(0)
    return kept


def _keep(given: tarfile.TarFile, result: tarfile.TarFile, folder: str) -> None:
    """Copies what may be carried; raises what `carry` raises."""
    files, size, entries = set[str](), 0, 0
    for member in given:
        entries += 1
        size += member.size
        if size > MOST_CARRIED or entries > MOST_FILES:
            raise TooLarge(_LARGE)
        name = posixpath.normpath(member.name).partition("/")[2]  # the first part is the directory itself
        if not name or ".." in name.split("/"):
            continue
        member.name = name
        if member.isreg():
            result.addfile(member, given.extractfile(member))
            files.add(name)
        elif member.islnk():  # a second name of a file that came before
            member.linkname = posixpath.normpath(member.linkname).partition("/")[2]
            if member.linkname in files:
                result.addfile(member)
        elif member.isdir() or (member.issym() and _stays(name, member.linkname, folder)):
            result.addfile(member)


def _stays(name: str, target: str, folder: str) -> bool:
    """Whether a link leads to a place in its directory, whatever other links it goes through.

    A `..` before any name leads up from a real folder; behind a name, which may be another link, it may lead anywhere.
    """
    if folder.strip("/") and target.startswith(f"{folder}/"):
        return ".." not in target.split("/")
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and ".." not in parts[up:] and up <= name.count("/")


def _graded(task: SessionTask, machine: Session) -> Grade:
    steps = [["sh", "-c", _EMPTIED], ["mkdir", "-p", posixpath.dirname(REWARD), "/tests", GRADER_HOME]]
    if task.in_place:
        steps.insert(1, ["sh", "-c", _UNLINKED])
    for argv in steps:
        done = machine.run(argv, timeout=_SECONDS)
        if done.code != 0:
            return Grade(0.0, f"the machine cannot be made ready for the grader: {_ended(done)}", tail_of(done, 300))
    try:
        done = run(machine, task, replace(task.grader, environment={**_CLEAN, **task.grader.environment}))
    except SessionError as error:
        return Grade(0.0, f"the grader cannot be written: {error}")
    machine.stop()
    output = tail_of(done, 2000)
    if done.timed_out:
        return Grade(0.0, f"the grader was not done after {task.grader.seconds:g} s", output)
    if done.code is None:
        return Grade(0.0, f"the grader {_ended(done)}")
    if done.code < 0 or done.code > SIGNALLED:
        return Grade(0.0, f"the grader was killed: {_ended(done)}", output)
    if not task.writes:
        return Grade(float(done.code == 0), "" if done.code == 0 else f"the grader {_ended(done)}", output)
    try:
        reward = float(machine.read(REWARD)[:100].decode())
    except SessionError:
        return Grade(0.0, f"the grader {_ended(done)} and wrote no reward", output)
    except ValueError:
        reward = math.nan
    if not math.isfinite(reward):
        return Grade(0.0, "the grader wrote a reward that is no number", output)
    return Grade(min(1.0, max(0.0, reward)), output=output)


def _ended(done: Exit) -> str:
    if done.timed_out:
        return "ran out of time"
    return f"ended with status {done.code}" if done.code is not None else f"did not start ({done.problem})"


def tail_of(done: Exit, most: int) -> str:
    """Returns the end of what a command printed."""
    return (done.stdout + done.stderr).decode("utf-8", "replace").strip()[-most:]


def assignments(environment: Mapping[str, str]) -> list[str]:
    """Returns variables as the program `env` takes them."""
    return [f"{name}={value}" for name, value in environment.items()]


class Machines:
    """Opens machines of tasks; what a task's commands made is kept, and its next machine begins with that."""

    def __init__(self, pool: SessionPool) -> None:
        self.pool = pool
        self._lock = threading.Lock()
        self._made: OrderedDict[bytes, tuple[Session, str]] = OrderedDict()

    def open(self, task: SessionTask) -> Session:
        """Returns a new machine for a task. Raises what `open_machine` raises."""
        if not task.commands or not self.pool.capabilities().get("snapshot"):
            return open_machine(self.pool, task)
        key = pickle.dumps(
            (task.image, {**task.files}, [*task.commands], {**task.environment}, task.limits, task.network)
        )
        with self._lock:
            if key not in self._made:
                made = open_machine(self.pool, task)
                made.stop()
                self._made[key] = made, made.snapshot()
            self._made.move_to_end(key)
            base, snapshot = self._made[key]
            machine = base.fork(snapshot)
            while len(self._made) > MOST_KEPT:
                self._made.popitem(last=False)[1][0].close()
        return machine

    def close(self) -> None:
        """Closes what is kept."""
        with self._lock:
            for base, _ in self._made.values():
                base.close()
            self._made.clear()
