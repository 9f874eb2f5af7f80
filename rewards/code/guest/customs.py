"""What a program may take for granted: names that contest sites import for it, and what stands in for a library.

In: compiled code. Out: the customary names that it mentions (`List`, `math`, `deque`, ...), to be set before it runs;
what the program imports or defines itself replaces them. Programs that mention pytest, which sandboxes seldom have,
get a module with the part of it that decorates, compares and expects exceptions; programs that open `/dev/stdin` or
`/dev/stdout`, which need `/proc`, get the descriptor; threads that ask for a stack of half a gigabyte, as contest
programs do to recurse deeply, get what the memory allows.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any, NamedTuple

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
    if "pytest" in mentioned:
        offer_pytest()
    if "stack_size" in mentioned:
        _offer_stacks()
    found: dict[str, Any] = {}
    for name in mentioned:
        if name not in NAMES:
            continue
        module, attribute = NAMES[name]
        loaded = importlib.import_module(module)
        found[name] = getattr(loaded, attribute) if attribute else loaded
    return found


def run_main(source: str) -> None:
    """Runs a program as `__main__`, with the customary names that it mentions."""
    if "/dev/std" in source:
        _offer_streams()
    code = compile(source, "<program>", "exec", dont_inherit=True)
    space = vars(sys.modules["__main__"])
    space.update(customary(code))
    exec(code, space)


def mentions(code: types.CodeType) -> set[str]:
    """Returns the global names and attributes that the code and the functions in it mention."""
    names: set[str] = set()
    waiting = [code]
    while waiting:
        each = waiting.pop()
        names.update(each.co_names)
        waiting.extend(constant for constant in each.co_consts if isinstance(constant, types.CodeType))
    return names


def offer_pytest() -> None:
    """Makes `import pytest` work where pytest is not installed."""
    from importlib.util import find_spec

    if "pytest" not in sys.modules and find_spec("pytest") is None:
        module: Any = types.ModuleType("pytest")
        module.raises = raises
        module.approx = Approx
        module.mark = Marks()
        module.fixture = fixture
        module.param = lambda *values, **_: values
        module.main = lambda *_, **__: 0
        sys.modules["pytest"] = module


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
    """Makes `open("/dev/stdin")` work."""
    import builtins

    plain = builtins.open

    def opened(file: Any, *given: Any, **named: Any) -> Any:
        return plain(_STREAMS.get(file, file) if type(file) is str else file, *given, **named)

    builtins.open = opened


class raises:  # noqa: N801 - the name that pytest has
    """Expects an exception in a `with` block."""

    def __init__(self, expected: Any, *, match: str | None = None) -> None:
        self._expected = expected
        self._match = match
        self.value: BaseException | None = None
        self.type: type[BaseException] | None = None

    def __enter__(self) -> raises:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if kind is None:
            raise AssertionError(f"did not raise {self._expected}")
        if not issubclass(kind, self._expected):
            return False
        self.value, self.type = error, kind
        if self._match is not None:
            import re

            if not re.search(self._match, str(error)):
                raise AssertionError(f"{str(error)!r} does not match {self._match!r}")
        return True


class Approx:
    """Equals numbers, and lists or dicts of numbers, that are near."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self._expected = expected
        self._relative = 1e-6 if rel is None and abs is None else rel or 0.0
        self._absolute = 1e-12 if abs is None else abs

    def __eq__(self, other: Any) -> bool:
        return self._near(self._expected, other)

    __hash__ = None  # type: ignore[assignment]

    def _near(self, expected: Any, other: Any) -> bool:
        if isinstance(expected, dict):
            same = type(other) is dict and expected.keys() == other.keys()
            return bool(same) and all(self._near(expected[key], other[key]) for key in expected)
        if isinstance(expected, list | tuple):
            same = type(other) in (list, tuple) and len(expected) == len(other)
            return same and all(self._near(one, two) for one, two in zip(expected, other, strict=True))
        if type(other) not in (int, float, complex, bool) or not isinstance(expected, int | float | complex):
            return bool(expected == other)
        if expected == other:
            return True
        if abs(expected) == float("inf"):
            return False
        return bool(abs(expected - other) <= max(self._relative * abs(expected), self._absolute))


class Marks:
    """`pytest.mark`: every mark is a decorator; `parametrize` is remembered on the function."""

    def __getattr__(self, name: str) -> Any:
        def mark(*given: Any, **named: Any) -> Any:
            if len(given) == 1 and not named and callable(given[0]):
                return given[0]

            def decorate(function: Any) -> Any:
                if name == "parametrize":
                    function.grpo_parameters = [*getattr(function, "grpo_parameters", []), (given[0], given[1])]
                return function

            return decorate

        return mark


class Printed(NamedTuple):
    """What was printed."""

    out: str
    err: str


class Captured:
    """The fixture `capsys`: what is printed, by the tests and by the solution, since it was last asked for."""

    def __init__(self) -> None:
        self._plain = sys.stdout, sys.stderr
        self._start()

    def _start(self) -> None:
        import io

        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        self._streams: Any = sys.stdout, sys.stderr

    def readouterr(self) -> Printed:
        """Returns what was printed on stdout and stderr, and forgets it."""
        out, err = (stream.getvalue() for stream in self._streams)
        self._start()
        return Printed(out, err)

    def end(self) -> None:
        """Ends it."""
        sys.stdout, sys.stderr = self._plain


def fixture(function: Any = None, **_: Any) -> Any:
    """Marks a function whose value other tests ask for by its name."""

    def decorate(made: Any) -> Any:
        made.grpo_fixture = True
        return made

    return decorate if function is None else decorate(function)
