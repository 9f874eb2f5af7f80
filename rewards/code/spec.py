"""Registers the verifier and the reward `code`, which judge a completion's program by the tests of its row.

Trouble of a sandbox is tried again and then a failure, which masks the completion; it is never a score.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_type_hints

from grpo.plugins.decorators import reward, verifier
from grpo.plugins.errors import DatasetError, OptionError
from grpo.plugins.types import Case, Scored, Verdict
from grpo.rewards.code.results import CodeResult, Comparison, UnusableTests

Credit = Literal["all", "fraction", "threshold"]

_LIMIT = 1800.0
_MEBIBYTE = 2**20
_DOUBLE = {"tests": ["assert double(2) == 4", "assert double(-3) == -6"], "entry_point": "double"}
_BACKWARDS = {"inputs": ["71\n", "a b\n"], "outputs": ["17\n", "b a\n"]}
_RIGHT = "Here it is:\n```python\ndef double(x):\n    return 2 * x\n```\n"
_HALF = "```python\ndef double(x):\n    return x + 2\n```"
_CHEAT = "```python\nclass Yes(int):\n    __eq__ = lambda a, b: True\ndef double(x):\n    return Yes()\n```"
_CASES: list[tuple[str, dict[str, Any], bool | None]] = [
    (_RIGHT, _DOUBLE, True),
    ("```python\nprint(input()[::-1])\n```", _BACKWARDS, True),
    (_HALF, _DOUBLE, False),
    (_CHEAT, _DOUBLE, False),
    ("I do not know.", _DOUBLE, False),
    ("", _DOUBLE, False),
    (_RIGHT, {"tests": ["assert double(2) =="], "entry_point": "double"}, None),
]


def prepare(*, sandbox: str, seconds: float, memory: int, tolerance: float, **others: Any) -> None:
    """Refuses options that cannot work. Raises OptionError: a number out of range; UsageError: no such sandbox."""
    numbers = {"seconds": seconds, "memory": memory, "threshold": others.get("threshold", 1.0)}
    for name, value in numbers.items():
        if not 0 < value < float("inf"):
            raise OptionError(f"{name}={value} must be a finite number above 0.")
    if numbers["threshold"] > 1:
        raise OptionError(f"threshold={numbers['threshold']:g} is a share of the tests: at most 1.")
    if not 0 <= tolerance < float("inf"):
        raise OptionError(f"tolerance={tolerance} must be a finite number, 0 or more.")
    if sandbox != "local":
        from grpo.plugins.host import Host

        Host.discover().sandbox(sandbox)


async def judged(
    completion: str,
    tests: Any = None,
    test: Any = None,
    test_list: Any = None,
    test_setup_code: Any = None,
    test_imports: Any = None,
    inputs: Any = None,
    outputs: Any = None,
    fn_name: Any = None,
    entry_point: Any = None,
    prompt: Any = None,
    *,
    sandbox: str = "local",
    seconds: float = 5.0,
    memory: int = 512,
    compare: Comparison = "trimmed",
    tolerance: float = 1e-6,
    stop_on_first_failure: bool = False,
    assurance: Literal["any", "split"] = "any",
    weak: Literal["keep", "exclude"] = "keep",
) -> tuple[str | None, CodeResult]:
    """Returns the program of a completion, or None, and how it did; the verifier and the reward share one run.

    Imports what it needs only now, so that listing plugins stays cheap. Raises DatasetError: no tests; TransientError:
    a sandbox failed; UnusableTests: unusable, or they pay a generic cheat and `weak` is "exclude".
    """
    from grpo.plugins.pools import pool_of
    from grpo.rewards.code.allowance import Allowance
    from grpo.rewards.code.judge import judge
    from grpo.rewards.code.judgements import JUDGEMENTS
    from grpo.rewards.code.task import Columns, task_of

    columns = Columns(
        tests, test, test_list, test_setup_code, test_imports, inputs, outputs, fn_name, entry_point, prompt
    )
    task = task_of(columns, tolerance=tolerance if compare == "float" else 0.0)
    program = task.program(completion)
    allowance = Allowance(seconds, memory * _MEBIBYTE, stop_on_first_failure)

    options: dict[str, Any] = {"comparison": compare, "tolerance": tolerance, "assurance": assurance}
    if weak == "exclude":
        from grpo.rewards.code.panel import paid_cheats

        paid = await paid_cheats(sandbox, task, memory=allowance.memory_bytes, **options)
        if paid:
            raise UnusableTests(f"the tests accept a program that {' and one that '.join(paid[:3])}")

    async def run() -> CodeResult:
        return (await judge(pool_of(sandbox), completion, task, allowance=allowance, **options))[1]

    what = (sandbox, program, task, compare, tolerance, assurance, seconds, memory)
    return program, await JUDGEMENTS.once(what, run, stop=stop_on_first_failure)


def cheats(row: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the generic cheats for a row, none where its tests cannot be used."""
    from grpo.rewards.code.panel import cheats_for
    from grpo.rewards.code.task import Columns, task_of

    try:
        return cheats_for(task_of(Columns(**{name: row.get(name) for name in Columns.__dataclass_fields__})))
    except (DatasetError, UnusableTests):
        return {}


def judging(**defaults: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a plugin function the columns and options of `judged`, with these defaults, before its own."""

    def give(function: Callable[..., Any]) -> Callable[..., Any]:
        shared = inspect.signature(judged).parameters.values()
        own = [each for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
        given = [each.replace(default=defaults.get(each.name, each.default)) for each in shared]
        function.__annotations__ = {**get_type_hints(judged), **get_type_hints(function)}
        function.__signature__ = inspect.Signature([*given, *own])  # type: ignore[attr-defined]
        return function

    return give


@verifier(
    version=15,
    timeout=_LIMIT,
    prepare=prepare,
    cheats=cheats,
    cases=[Case(*case) for case in _CASES],
)
@judging(stop_on_first_failure=True)
async def code(completion: str, *columns: Any, **options: Any) -> Verdict:
    """Judges whether the completion's program passes every test of its row.

    The program is the last fenced block that defines `entry_point`, or the last one, or the text without fences. The
    tests are `tests` (assertions, a test file, or an object with inputs and outputs), HumanEval's `test`, MBPP's
    `test_list`, or `inputs` and `outputs`; docs/code.md lists the forms. The tests alone decide how they are judged:
    where plain data is all that crosses, tests and program run in sandboxes of their own (assurance "split"); other
    tests run with the program in one guarded process, by pytest where they are written for it ("guarded"). Undecided
    when the tests cannot be used.

    Options: sandbox (the SPEC of a sandbox), seconds (processor time of a test), memory (mebibytes), compare (exact,
    trimmed, tokens, float) with tolerance for outputs, stop_on_first_failure, assurance (any, or split to refuse tests
    that have to run in one process with the program), weak (exclude: undecided where the tests accept a generic cheat,
    such as a program that returns True whatever it is given).
    """
    try:
        program, result = await judged(completion, *columns, **{"stop_on_first_failure": True, **options})
    except UnusableTests as fault:
        return Verdict(None, None, f"undecided: {fault}")
    return Verdict(result.passed == result.count, program, result.line())


@reward(
    name="code",
    version=15,
    range=(0.0, 1.0),
    timeout=_LIMIT,
    prepare=prepare,
    cases=[
        *(Case(text, row, None if right is None else float(right)) for text, row, right in _CASES),
        Case(_HALF, _DOUBLE, 0.5, {"credit": "fraction"}),
        Case(_HALF, _DOUBLE, 1.0, {"credit": "threshold", "threshold": 0.5}),
        Case(_CHEAT, _DOUBLE, 0.0, {"credit": "fraction"}),
    ],
)
@judging(weak="exclude")
async def passing(
    completion: str, *columns: Any, credit: Credit = "all", threshold: float = 1.0, **options: Any
) -> float | Scored:
    """Scores the completion's program by the tests of its row that it passes.

    credit: all (1 when every test passed, else 0), fraction (the share of the tests that passed) or threshold (1 when
    that share is at least `threshold`). With stop_on_first_failure the tests after the first failure count as failed.
    Abstains when the tests cannot be used, and unless weak=keep where they accept a generic cheat, which is played once
    for each task. Program, tests and the other options are those of the verifier `code`.
    """
    stop = options.pop("stop_on_first_failure", False) or credit == "all"
    try:
        _, result = await judged(completion, *columns, **{"weak": "exclude", **options, "stop_on_first_failure": stop})
    except UnusableTests as fault:
        return Scored(None, reason=f"{fault}")
    if credit == "fraction":
        return result.fraction
    wanted = 1.0 if credit == "all" else threshold
    return 1.0 if result.fraction >= wanted else 0.0
