"""Loads a program as the module that tests import, or as the main one, with the names of contest sites.

Compiled code that mentions a customary name (`List`, `math`, `deque`, ...) gets it before it runs; what the program
imports or defines itself replaces it. Programs that open `/dev/stdin` or `/dev/stdout`, which need `/proc`, get the
descriptor; threads that ask for a stack of half a gigabyte, to recurse deeply, get what the memory allows.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

MODULE = "solution"
FILE = f"<{MODULE}>"
LONGEST = 300
SOLUTION_MODULES = (
    *("solution", "submission", "candidate", "main", "answer", "implementation", "module_name", "solution_module"),
    *(f"{whose}_{what}" for whose in ("your", "my") for what in ("module", "solution", "code")),
)
"""The names under which tests import a solution."""

_MODULES = (
    "bisect collections copy datetime decimal fractions functools heapq itertools json math operator random re"
    " statistics string sys time typing"
)
_FROM = {
    "typing": (
        "Any Callable DefaultDict Deque Dict FrozenSet Generator Generic Iterable Iterator List Literal Mapping"
        " NamedTuple NoReturn Optional Sequence Set Tuple Type TypeVar Union"
    ),
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "itertools": (
        "accumulate chain combinations combinations_with_replacement count cycle groupby islice permutations product"
        " repeat zip_longest"
    ),
    "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
    "bisect": "bisect_left bisect_right insort",
    "math": ("atan2 ceil comb cos factorial floor gcd hypot inf isqrt lcm log log10 log2 pi prod sin sqrt tan"),
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits",
    "dataclasses": "dataclass field",
    "enum": "Enum",
    "abc": "ABC abstractmethod",
}
NAMES = {name: (module, name) for module, names in _FROM.items() for name in names.split()}
NAMES |= {name: (name, "") for name in _MODULES.split()}
_STACKS, _PAGE = 4, 4096  # a stack is at most a quarter of the memory, in whole pages
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def customary(code: types.CodeType) -> dict[str, Any]:
    """Returns the customary names that the code mentions, with their values."""
    mentioned = mentions(code)
    if "stack_size" in mentioned:
        _offer_stacks()
    namespace: dict[str, Any] = {}
    for name in mentioned:
        if name not in NAMES:
            continue
        module, attribute = NAMES[name]
        loaded = importlib.import_module(module)
        namespace[name] = getattr(loaded, attribute) if attribute else loaded
    return namespace


def run_main(source: str) -> None:
    """Runs a program as `__main__`, with the customary names that it mentions."""
    if "/dev/std" in source:
        _offer_streams()
    code = compile(source, "<program>", "exec", dont_inherit=True)
    space = vars(sys.modules["__main__"])
    space.update(customary(code))
    exec(code, space)


def new_module() -> types.ModuleType:
    """Returns an empty module in which a solution will run, and makes every name for it importable."""
    module = types.ModuleType(MODULE)
    module.__file__ = path_of(f"{MODULE}.py")
    vars(module)["__builtins__"] = sys.modules["builtins"]
    for name in SOLUTION_MODULES:
        sys.modules[name] = module
    return module


def path_of(name: str) -> str:
    """Returns the path of a file in the folder that programs begin in."""
    return os.path.abspath(name)  # noqa: PTH100 - pathlib takes longer to load


def show_source(module: types.ModuleType, source: str) -> None:
    """Writes a solution to the file of its module, for tests that read its source or load it again."""
    import importlib.machinery
    import linecache

    path = str(module.__file__)
    loader = importlib.machinery.SourceFileLoader(MODULE, path)
    loader.set_data(path, source.encode("utf-8", "surrogatepass"))
    module.__spec__ = importlib.machinery.ModuleSpec(MODULE, loader, origin=path)
    linecache.cache[FILE] = len(source), None, source.splitlines(keepends=True), FILE


def run_source(module: types.ModuleType, source: str, file: str = FILE) -> dict[str, Any]:
    """Runs a source text in a module, with the customary names that it mentions, and returns these."""
    space = vars(module)
    code = compile(source, file, "exec", dont_inherit=True)
    offered = {name: value for name, value in customary(code).items() if name not in space}
    space.update(offered)
    exec(code, space)
    return offered


def asked_for(module: types.ModuleType, name: str, given: dict[str, Any]) -> Any:
    """Returns that global, or a new `Solution`'s method, not one of `given`. Raises NameError for neither."""
    space = vars(module)
    own = name in space and space[name] is not given.get(name, space)
    kind = space.get("Solution")
    if not own and isinstance(kind, type) and callable(getattr(kind, name, None)):
        return lambda *args, **named: getattr(kind(), name)(*args, **named)
    if name not in space:
        raise NameError(f"name {name!r} is not defined")
    return space[name]


def line_of(error: BaseException) -> str:
    """Returns an exception in one line; one whose text fails gives its name."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:
        text = type(error).__name__
    return text[:LONGEST]


def mentions(code: types.CodeType) -> set[str]:
    """Returns the global names and attributes that the code and the functions in it mention."""
    names: set[str] = set()
    waiting = [code]
    while waiting:
        each = waiting.pop()
        names.update(each.co_names)
        waiting.extend(constant for constant in each.co_consts if isinstance(constant, types.CodeType))
    return names


def _offer_stacks() -> None:
    """Makes `threading.stack_size` set a part of the memory where more is asked for than there is."""
    import resource
    import threading

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    known = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    plain: Any = threading.stack_size
    if not known or getattr(plain, "__name__", "") == "limited":
        return
    most = min(known) // _STACKS // _PAGE * _PAGE

    def limited(size: int = 0) -> int:
        before: int = plain(min(size, most))
        return before

    threading.stack_size = limited


def _offer_streams() -> None:
    import builtins

    plain = builtins.open

    def opened(file: Any, *given: Any, **named: Any) -> Any:
        return plain(_STREAMS.get(file, file) if type(file) is str else file, *given, **named)

    builtins.open = opened
