"""Runs a Python program as `__main__` in this process: source in, exit code out, ended as the interpreter would.

Exit codes, `SystemExit`, uncaught exceptions on stderr, threads that are waited for, `atexit`, a flush that fails:
all as in `python program.py`. What differs: `__del__` is not called at the end, and the text streams are UTF-8.

This module runs inside the sandbox and imports the standard library only.
"""

from __future__ import annotations

import atexit
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

from grpo.rewards.sandbox import wire

_FLUSH_FAILED = 120
_INTERRUPTED = 130


_ready: dict[bytes, types.CodeType] = {}


def prepare_main(name: str, folder: str, known: Iterable[str]) -> None:
    """Does what every program needs, once, in the process from which they are forked.

    Makes the text streams, over whatever descriptors 0, 1 and 2 are then, and an empty `__main__`, and compiles the
    programs that will come often.

    Args:
        name: the file name of programs, in `sys.argv[0]`; there is no such file.
        folder: the folder of programs.
        known: the source of programs that will come often.
    """
    _open_streams()
    _ready.update({text.encode(): compile(text, name, "exec", dont_inherit=True) for text in known})
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=name, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.path.insert(0, folder)
    sys.argv = [name]


def run_python(program: bytes, name: str, notes: mmap.mmap, *, alone: bool) -> int:
    """Runs a program after `prepare_main`.

    Args:
        program: its source.
        name: its file name, in tracebacks.
        notes: shared with the zygote; the first byte says why the program failed.
        alone: it cannot have started a thread, so that none is waited for.
    """
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
        exec(code, sys.modules["__main__"].__dict__)
    except BaseException as error:
        status = _status_of(error, notes)
    return _ended(status, notes, alone)


def _open_streams() -> None:
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8")
    raw = io.BufferedWriter(io.FileIO(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    sys.__dict__.update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def _status_of(error: BaseException, notes: mmap.mmap) -> int:
    """Reports what the program raised and returns the exit code that follows from it."""
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


def _ended(status: int, notes: mmap.mmap, alone: bool) -> int:
    """Does what the interpreter does when the main module is through."""
    try:
        if not alone:
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
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        status = status or _FLUSH_FAILED
    return status
