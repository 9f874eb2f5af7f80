"""Saves the process state that a plugin may change before a call, and restores it after.

Environment variables and modules stay as plugins leave them, but for the variables of a launcher.
"""

from __future__ import annotations

import gc
import locale
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGPIPE")
LIMITS = ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_STACK")

DEVICES = ("cpu", "cuda")
_BLOCKS: list[Any] = []

Part = tuple[str, Callable[[], Any], Callable[[Any], object]]


class ProcessState:
    """The state of the process when this is made; with `thread`, also that of the calling thread alone."""

    def __init__(self, *, thread: bool = True) -> None:
        self._pid = os.getpid()
        self._thread = thread
        self._before = {name: value for name, value, _ in _values(thread)}

    def put_back(self) -> list[str]:
        """Restores everything, returning what was changed; ends a process that the plugin forked."""
        if os.getpid() != self._pid:
            os._exit(0)
        changed = []
        for name, value, write in list(_values(self._thread)):
            before = self._before.get(name)  # None: what is found now was imported since
            if before is not None and before is not value and before != value:
                with suppress(OSError, ValueError):
                    write(before)
                changed.append(name)
        return changed


def _values(thread: bool) -> Iterator[tuple[str, Any, Callable[[Any], object]]]:
    """Yields a name, the value now and how to set it; None for what cannot be read."""
    for name, read, write in (*_of_python(), *_of_torch(), *(_of_thread() if thread else ())):
        try:
            value = read()
        except (OSError, ValueError):  # the working directory may have been removed
            value = None
        yield name, value, write


def _of_python() -> Iterator[Part]:
    yield "the working directory", os.getcwd, os.chdir
    yield "the umask", _umask, os.umask
    yield "variables of the launcher", lambda: {name: os.environ.get(name) for name in LAUNCHER}, _set_variables
    yield "stdout", lambda: sys.stdout, lambda stream: setattr(sys, "stdout", stream)
    yield "stderr", lambda: sys.stderr, lambda stream: setattr(sys, "stderr", stream)
    yield "the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit
    yield "the garbage collector", gc.isenabled, lambda on: gc.enable() if on else gc.disable()
    yield "the locale", lambda: locale.setlocale(locale.LC_ALL), lambda own: locale.setlocale(locale.LC_ALL, own)
    yield "warnings that are errors", lambda: [each for each in warnings.filters if each[0] == "error"], _set_errors
    yield "limits of the process", lambda: {name: _limit(name)[0] for name in LIMITS}, _set_limits
    if threading.current_thread() is threading.main_thread():  # elsewhere signals are not to be set
        yield "handlers of signals", lambda: {name: signal.getsignal(_number(name)) for name in SIGNALS}, _set_handlers
        yield "an alarm", lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0, _set_alarm


def _of_torch() -> Iterator[Part]:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_float32_matmul_precision"):  # or it is being imported just now
        return
    yield "torch's default dtype", torch.get_default_dtype, torch.set_default_dtype
    yield "torch's threads", torch.get_num_threads, torch.set_num_threads
    yield (
        "torch's deterministic algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda how: torch.use_deterministic_algorithms(how[0], warn_only=how[1]),
    )
    yield "torch's precision of products", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    yield "torch's search for anomalies", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly


def _of_thread() -> Iterator[Part]:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and hasattr(numpy, "geterr"):
        yield "numpy's handling of errors", numpy.geterr, lambda how: numpy.seterr(**how)
    if torch is not None and hasattr(torch, "get_default_device"):
        yield "whether gradients are recorded", _recorded, _set_recorded
        yield "torch's default device", torch.get_default_device, lambda _: torch.set_default_device(None)
        yield "torch's autocast", _autocast, _set_autocast


def _autocast() -> tuple[Any, ...]:
    torch = sys.modules["torch"]
    torch.autocast_increment_nesting()  # it can only be read by changing it
    depth = torch.autocast_decrement_nesting()
    return depth, *((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in DEVICES)


def _set_autocast(how: tuple[Any, ...]) -> None:
    torch = sys.modules["torch"]
    depth, *devices = how
    for kind, on, dtype in devices:
        torch.set_autocast_enabled(kind, on)
        torch.set_autocast_dtype(kind, dtype)
    while _autocast()[0] > depth:
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()  # weights that it cast are kept until its last block ends


def _recorded() -> tuple[bool, bool]:
    torch = sys.modules["torch"]
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def _set_recorded(how: tuple[bool, bool]) -> None:
    torch = sys.modules["torch"]
    recorded, inferring = how
    if torch.is_inference_mode_enabled() is not inferring:
        block = torch.inference_mode(inferring)
        block.__enter__()
        _BLOCKS.append(block)  # a block that is collected puts back what was before it
    torch.set_grad_enabled(recorded)


def _umask() -> int:
    now = os.umask(0o077)  # it can only be read by setting it
    os.umask(now)
    return now


def _set_variables(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _set_errors(before: list[Any]) -> None:
    kept = [entry for entry in warnings.filters if entry[0] != "error" or entry in before]
    warnings.resetwarnings()  # what was remembered of them is forgotten, too
    warnings.filters[:] = kept  # type: ignore[index]  # a list, whatever its stub says


def _number(name: str) -> int:
    return int(getattr(signal, name))


def _set_handlers(handlers: dict[str, Any]) -> None:
    for name, handler in handlers.items():
        if handler is not None:  # None: it was not set from Python
            signal.signal(_number(name), handler)


def _set_alarm(running: bool) -> None:
    if not running:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit(name: str) -> tuple[int, int]:
    return resource.getrlimit(getattr(resource, name))


def _set_limits(soft: dict[str, int]) -> None:
    for name, own in soft.items():
        resource.setrlimit(getattr(resource, name), (own, _limit(name)[1]))
