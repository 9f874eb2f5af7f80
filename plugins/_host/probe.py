"""Tries in a child process whether an entry point can be imported, and caches the result until its package changes.

A plugin that ends or hangs the process cannot be caught in it. Results are cached by a hash of the distribution's
version and of path, size and time of its files.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from grpo.plugins._host.entry_points import Entry
from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from subprocess import Popen

CACHE_VARIABLE = "GRPO_CACHE"
SECONDS_VARIABLE = "GRPO_PROBE_SECONDS"
SECONDS = 20.0
PROBING = "GRPO_PROBING"
"""Set in the child, so that a plugin that looks for plugins while it is imported starts no children of its own."""
BEGAN, TOLD, LOADED = "began", "told", "loaded"
"""What the child notes."""
_SAFE = "safe"
_MOST_FILES = 3000
_CODE = (".py", ".so", ".pyd")
_MOST_LINES = 500
_MARGIN = 5.0  # seconds for the child to start, and to end by itself at its limit
_FRAME = lazy_pattern(r'File "([^"]+)", line (\d+)')
_LONG = 2.0  # seconds after which a person is told what takes so long


def memory_file() -> str:
    """Returns the path of the file with earlier results."""
    default = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "grpo")
    return os.path.join(os.environ.get(CACHE_VARIABLE) or default, "plugins.txt")


def forget() -> None:
    """Deletes earlier results."""
    with suppress(OSError):
        os.unlink(memory_file())


def faults_of(entries: Iterable[Entry]) -> Iterator[str]:
    """Yields for each entry why it must not be imported, or ""."""
    known: dict[str, str] | None = None
    for entry in entries:
        files = () if os.environ.get(PROBING) else tuple(islice(_files(entry), _MOST_FILES))
        if not files:  # ours, or nothing that could be imported; importing it says so
            yield ""
            continue
        if known is None:
            known = _remembered()
        key = _key(entry, files)
        if key not in known:
            fault = _tried(entry)
            known[key] = fault or _SAFE
            if fault is not None:
                _remember(key, known[key])
        yield "" if known[key] == _SAFE else known[key]


def _files(entry: Entry) -> Iterator[tuple[str, int, int]]:
    top = entry.module.partition(".")[0]
    if not top or top == "grpo":
        return
    try:
        spec = importlib.util.find_spec(top)
    except Exception:  # of a finder of somebody else's
        return
    if spec is None:
        return
    if spec.origin and os.path.isfile(spec.origin):
        yield _stamp(spec.origin)
    for place in spec.submodule_search_locations or ():
        for folder, folders, names in os.walk(place):
            folders[:] = sorted({*folders} - {"__pycache__"})
            yield from (_stamp(os.path.join(folder, name)) for name in sorted(names) if name.endswith(_CODE))


def _stamp(path: str) -> tuple[str, int, int]:
    try:
        about = os.stat(path)
    except OSError:
        return path, -1, -1
    return path, about.st_size, about.st_mtime_ns


def _key(entry: Entry, files: tuple[tuple[str, int, int], ...]) -> str:
    import hashlib

    named = (entry.distribution, entry.distribution_version, entry.name, entry.module, entry.attribute)
    return hashlib.sha256(repr((sys.prefix, sys.version, named, files)).encode("utf-8", "replace")).hexdigest()


def _remembered() -> dict[str, str]:
    try:
        with open(memory_file(), encoding="utf-8") as lines:
            return dict(line.rstrip("\n").split(" ", 1) for line in lines if line[64:65] == " ")
    except (OSError, ValueError):
        return {}


def _remember(key: str, fate: str) -> None:
    path = memory_file()
    line = f"{key} {fate}\n".encode("utf-8", "replace")
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        full = os.path.exists(path) and os.path.getsize(path) > _MOST_LINES * 200
        with open(path, "wb" if full else "ab", buffering=0) as file:
            file.write(line)


def _tried(entry: Entry) -> str | None:
    """Loads an entry in a child process; returns why it must not be loaded in this one, "", or None: unknown."""
    import json
    import signal
    import subprocess
    import tempfile

    limit = _limit()
    code = "import json, sys; given = json.loads(sys.argv[1]); sys.path[:] = given['path']; "
    code += "from grpo.plugins._host.probe_child import main; main(given)"
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as output:
        given = {
            "path": [os.fspath(place) for place in sys.path],
            "entry": [entry.distribution, entry.distribution_version, entry.name, entry.module, entry.attribute],
            "said": output.name,
            "seconds": limit,
        }
        command = [sys.executable or "python3", "-c", code, json.dumps(given)]
        quiet, environment = subprocess.DEVNULL, {**os.environ, PROBING: "1"}
        try:
            child = subprocess.Popen(
                command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, start_new_session=True
            )
        except OSError:
            return None
        try:
            status = _waited(child, entry, limit)
        finally:
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)  # what it may have started, too
            child.wait()
        return _fault(child.pid, status, output.read().splitlines(), limit)


def _limit() -> float:
    text = os.environ.get(SECONDS_VARIABLE, "")
    try:
        seconds = float(text or SECONDS)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"{SECONDS_VARIABLE}={text!r} must be a number of seconds above 0. Change or unset it.")
    return seconds


def _waited(child: Popen[bytes], entry: Entry, limit: float) -> int | None:
    from subprocess import TimeoutExpired

    try:
        return child.wait(min(_LONG, limit + _MARGIN))
    except TimeoutExpired:
        with suppress(AttributeError, OSError, ValueError):  # there is no stderr, or it is closed
            sys.stderr.write(
                f"Trying in a process of its own, once, whether '{entry.name}' of {entry.distribution} can be loaded "
                "...\n"
            )
    try:
        return child.wait(limit + _MARGIN)
    except TimeoutExpired:
        return None


def _fault(child: int, status: int | None, output: list[str], limit: float) -> str | None:
    """Returns why a try failed: "" when the entry was loaded, None when that is unknown."""
    if f"{LOADED} {child}" in output:
        return ""
    if BEGAN not in output:  # this machine starts no process, or not with this interpreter's path
        return None
    again = "It is not loaded until the package changes or `grpo plugins --again` tries it once more."
    progress = next((line.partition(" ")[2] for line in output if line.startswith(f"{TOLD} ")), "")
    frame = next((match for line in output if (match := _FRAME.match(line.strip()))), None)
    place = f" (at {os.path.join(*frame[1].split(os.sep)[-2:])}:{frame[2]})" if frame else ""
    if status is None or any(line.startswith("Timeout (") for line in output):
        return (
            f"it does not finish loading: after {limit:g} s it was still at it{place}. {again} Where it is only slow, "
            f"give it more time: {SECONDS_VARIABLE}={6 * limit:g} grpo plugins --again"
        )
    if progress:
        return f"loading it {progress}. {again}"
    how = f"exit code {status}" if status >= 0 else f"signal {-status}"
    return f"loading it ends the process, with {how}{place}. {again}"
