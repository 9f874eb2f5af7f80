"""Refuses a solution that inspects the tests, their runner or the frames around it in a shared process.

An audit hook (PEP 578) cannot be removed. It refuses what reaches frames, tracing, the collector's lists, memory and
files, where the solution asks for it itself; the standard library may do so on its behalf (`logging`, `namedtuple`),
but for the functions whose purpose it is to hand such things out. What has no event is refused by its name in the
source text. This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

_NAMES = re.compile(
    r"__globals__|__closure__|\.__builtins__|cell_contents|\.f_(?:back|globals|locals|builtins)\b|\b(?:gi|cr|ag|tb)_frame\b"
    r"|\b_pytest\b|/proc/self|\b(?:object|type|TestCase|Module)\.__subclasses__|['\"]__subclasses__"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EVENTS = _words(
    "sys._getframe sys._current_frames sys._current_exceptions sys.settrace sys.setprofile gc.get_objects"
    " gc.get_referrers gc.get_referents sys.addaudithook socket.__new__ code.__new__ open object.__getattr__"
    " object.__setattr__ import compile marshal.loads"
)
_MODULES = _words("ctypes _ctypes _testcapi _pytest _xxsubinterpreters _interpreters")
_ATTRIBUTES = _words("tb_frame gi_frame cr_frame ag_frame gi_code cr_code ag_code f_locals f_globals f_back")
# Functions of the standard library that hand out frames, or what others hold.
_HANDING = _words(
    "currentframe stack trace getouterframes getinnerframes getframeinfo getclosurevars walk_stack walk_tb"
    " _getframe settrace setprofile get_stack extract <lambda>"
)
_TRANSPARENT = ("<frozen",)
# For nobody: what a library traces with may be replaced, and what it compiles could pass for the tests' or its own.
_NEVER = ("sys.settrace", "sys.setprofile", "compile")
_HEAD_OF_COMPILED = 16  # bytes before the code in a .pyc file
_DEFAULTS = ("__defaults__", "__kwdefaults__")


def _hide_frames_from_handlers() -> None:
    """Gives handlers of signals no frame: there is no event for what is interrupted."""
    import signal

    inner = sys.modules["_signal"]
    plain: Any = vars(inner)["signal"]

    def handled(number: int, handler: Any, /) -> Any:
        return plain(number, (lambda given, _: handler(given, None)) if callable(handler) else handler)

    vars(inner)["signal"] = handled
    vars(signal.signal)["__wrapped__"] = handled


def looks_around(source: str) -> str:
    """Returns the name in a source text by which it would look around, or ""."""
    match = _NAMES.search(source)
    return match[0] if match else ""


def install(files: tuple[str, ...], refused: Callable[[str], None]) -> Callable[[bool], None]:
    """Installs the hook; returns what switches it on and off, which only the judge has.

    `files` are beginnings of the paths of the standard library. `refused` gets what the solution asked for.
    """
    frame_of = sys._getframe
    judge = install.__code__.co_filename.rpartition("guard")[0]  # how the names of its files begin
    state = [False, False]

    def reading(depth: int) -> Any:
        """Returns a frame around the caller; its own event, which comes at once in this thread, is left alone."""
        state[1] = True
        return frame_of(depth + 1)

    def by_solution(event: str) -> bool:
        """Returns whether the solution asks itself, or through a function that hands things out.

        A function of the library that does not name what is called, such as a decorator, was given it.
        """
        frame = reading(2)
        given = event.startswith("sys._") and event.rpartition(".")[2] not in frame.f_code.co_names
        name = ""
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(("<tests>", judge)):
                return False
            if not file.startswith((*files, *_TRANSPARENT)):  # whatever the program calls the file of its code
                return not name or name in _HANDING or given or event in _NEVER
            if not file.startswith(_TRANSPARENT):
                name = frame.f_code.co_name
            frame = frame.f_back
        return False

    def is_of_others(function: Any) -> bool:
        """Returns whether a function is the library's, the tests' or the judge's."""
        file = str(getattr(getattr(function, "__code__", None), "co_filename", ""))
        return file.startswith((*files, judge, "<tests>"))

    def is_of_library(path: str, code: bytes) -> bool:
        """Returns whether a compiled file of the library holds that code."""
        if not path.startswith(files) or "/.." in path:
            return False
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to load
            return file.read()[_HEAD_OF_COMPILED:] == code

    def holds_judge(function: Any) -> bool:
        """Returns whether functions of the judge stand in the code of a function, as in that of a test."""
        state[1] = True
        waiting = [function.__code__]
        for code in waiting:
            waiting += [each for each in code.co_consts if type(each) is type(code)]
            if any(type(each) is type(hook) for each in code.co_consts):
                return True
        return False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not state[0] or (event not in _EVENTS and not event.startswith("ctypes.")):
            return
        if state[1]:
            state[1] = False
            return
        if event == "import" and str(args[0]).partition(".")[0] not in _MODULES:
            return
        if (
            event == "compile"
            and type(args[1]) is str
            and not args[1].startswith((*files, judge, "<frozen", "<tests>"))
        ):
            return  # an object of another class could say that it is any of these
        if event == "marshal.loads" and is_of_library(str(reading(1).f_locals.get("bytecode_path")), args[0]):
            return  # by an import; other files could hold code of any name
        name = args[1] if event == "object.__getattr__" else ""
        if name == "__code__":
            reader = reading(1).f_code
            if reader.co_name == "getclosurevars" or holds_judge(args[0]):
                name = "f_globals"  # which it hands out
                event = "compile" if reader.co_filename.endswith("/dis.py") else event
        if name and name not in _ATTRIBUTES:
            return
        of_others = event == "object.__setattr__" and args[1] in _DEFAULTS and is_of_others(args[0])
        if event == "object.__setattr__" and args[1] != "__code__" and not of_others:
            return
        if event == "open" and not str(args[0]).startswith("/proc"):
            return
        if by_solution(event):
            refused(event)
            raise PermissionError(f"a solution may not use {event} here")

    def switch(on: bool) -> None:
        state[0] = on
        if on:
            _hide_frames_from_handlers()

    sys.addaudithook(hook)
    return switch
