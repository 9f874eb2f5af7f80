"""Runs a Python program as `__main__` in this process, and ends as the interpreter would.

Exit codes, `SystemExit`, uncaught exceptions on stderr, waiting for threads, `atexit`, a flush that fails: all as in
`python program.py`. What differs: `__del__` is not called at the end, though files that globals hold are flushed, and
the text streams are UTF-8. This module runs inside the sandbox and imports the standard library only.
"""

from __future__ import annotations

import _io
import _sitebuiltins
import atexit
import builtins
import gc
import io
import linecache
import mmap
import os
import sys
import threading
import traceback
import types
from collections.abc import Iterable
from typing import Any

from grpo.rewards.sandbox.inside import wire

_FLUSH_FAILED = 120
_INTERRUPTED = 130
_THREAD_STACK = 8 * 2**20


_ready: dict[bytes, types.CodeType] = {}
_main = types.ModuleType("__main__")


def prepare_main(name: str, folder: str, known: Iterable[str]) -> None:
    """Does what every program needs, once, in the process from which they are forked.

    Makes the text streams, over whatever descriptors 0, 1 and 2 are then, and an empty `__main__`, and compiles
    frequent programs. `name`: the file name of programs, in `sys.argv[0]`; there is no such file.
    """
    _open_streams()
    for word in ("exit", "quit"):  # the site package, which is not loaded, would do this
        setattr(builtins, word, _sitebuiltins.Quitter(word, "Ctrl-D (i.e. EOF)"))
    threading.stack_size(_THREAD_STACK)  # else that of the main thread, which is large
    _ready.update({text.encode(): compile(text, name, "exec", dont_inherit=True) for text in known})
    _main.__dict__.update(__file__=name, __builtins__=__builtins__)
    sys.modules["__main__"] = _main
    sys.path.insert(0, folder)
    sys.argv = [name]


def run_python(program: bytes, name: str, notes: mmap.mmap) -> int:
    """Runs a program after `prepare_main`; the first byte of `notes` says why the program failed."""
    try:
        code = _ready.get(program) or compile(program, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        notes[0] = wire.NOTED_COMPILE
        traceback.print_exception(type(error), error, None)
        return _flushed(1)
    linecache.cache[name] = (lambda: program.decode("utf-8", "replace"),)
    gc.enable()
    status = 0
    try:
        exec(code, _main.__dict__)
    except BaseException as error:
        status = _status_of(error, notes)
    return _ended(status, notes)


def _open_streams() -> None:
    raw: list[Any] = [io.FileIO(number, mode, closefd=False) for number, mode in enumerate("rww")]
    for file, name in zip(raw, ("<stdin>", "<stdout>", "<stderr>"), strict=True):
        file.name = name
    sys.stdin = io.TextIOWrapper(io.BufferedReader(raw[0]), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw[1]), encoding="utf-8")
    errors = io.BufferedWriter(raw[2])
    sys.stderr = io.TextIOWrapper(errors, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    for stream, mode in ((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w")):
        stream.mode = mode  # type: ignore[misc]  # as the interpreter does
    sys.__dict__.update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def _status_of(error: BaseException, notes: mmap.mmap) -> int:
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    if isinstance(error, MemoryError):
        notes[0] = wire.NOTED_MEMORY
    trace = error.__traceback__
    trace = trace.tb_next if trace else None  # without the frame of `run_python`
    try:
        # The interpreter's own hook would look for the source in a file, and there is none.
        own = sys.excepthook is sys.__excepthook__
        (traceback.print_exception if own else sys.excepthook)(type(error), error.with_traceback(trace), trace)
    except SystemExit as again:
        return _status_of(again, notes)
    except BaseException:
        os.write(2, f"{type(error).__name__}, and sys.excepthook failed\n".encode())
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _ended(status: int, notes: mmap.mmap) -> int:
    try:
        if len(threading._active) > 1 or threading._threading_atexits:  # type: ignore[attr-defined]
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException as error:
        status = _status_of(error, notes) or status
    return _flushed(status)


def _flushed(status: int) -> int:
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError, UnicodeError) as error:
        if not getattr(sys.stdout, "closed", False):
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
            status = status or _FLUSH_FAILED
    for file in (sys.stderr, sys.__stdout__, *_open_files()):
        try:
            file.flush()
        except (OSError, ValueError, AttributeError):
            status = status or (_FLUSH_FAILED if file is sys.stderr else 0)
    return status


def _open_files() -> list[Any]:
    """The files that globals of the program hold, which its end would close."""
    return [each for each in vars(_main).values() if issubclass(type(each), _io._IOBase)]
