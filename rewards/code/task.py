"""Reads from a row's columns what a program must do.

Three forms of tests are known: assertions (HumanEval's `test`, MBPP's `test_list`, `tests` as source or a list of
sources), calls with expected results (`fn_name` or `entry_point` with `inputs` and `outputs`), and programs that read
stdin and print (`inputs` and `outputs`). `tests` may also hold any of these as an object or as JSON text.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.plugins.errors import DatasetError
from grpo.rewards.code.extraction import defines, program_of
from grpo.rewards.code.results import UnusableTests
from grpo.rewards.code.tests_plan import Plan, leading_name, plan_tests

_SOURCES = ("asserts", "test_list", "assert_case", "code", "test", "test_code", "tests")
_INPUTS = ("inputs", "input")
_OUTPUTS = ("outputs", "output")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a row that bear on its tests, as they came; None or "" where the row has none."""

    tests: Any = None
    test: Any = None
    test_list: Any = None
    test_setup_code: Any = None
    test_imports: Any = None
    inputs: Any = None
    outputs: Any = None
    fn_name: Any = None
    entry_point: Any = None
    prompt: Any = None


@dataclass(frozen=True, slots=True)
class Task:
    """What a program must do.

    Attributes:
        entry_point: the function or class asked for, or "".
        prompt: code that a completion continues unless it defines the entry point, or "".
        sources: assertions; empty for a program that prints.
        before: code to run before the assertions.
        inputs, outputs: what a program that prints reads for each test, and must print.
    """

    entry_point: str = ""
    prompt: str = ""
    sources: tuple[str, ...] = ()
    before: str = ""
    inputs: tuple[bytes, ...] = ()
    outputs: tuple[bytes, ...] = ()

    def plan(self) -> Plan:
        """Returns the prepared assertions; raises `UnusableTests` as `plan_tests` does."""
        return plan_tests(self.sources, before=self.before, prompt=self.prompt, entry_point=self.entry_point)

    def program(self, completion: str) -> str | None:
        """Returns the whole program of a completion, or None. Raises UnusableTests: no name to look for."""
        name = leading_name(self.entry_point)
        asked = (name,) if name or not self.sources else self.plan().names
        offered = program_of(completion, *asked)
        if offered is None or not self.prompt or defines(offered, name):
            return offered
        return self.prompt + offered


def task_of(row: Columns, *, tolerance: float = 0.0) -> Task:
    """Returns the task of a row; where a call's result is compared, a float may differ by the tolerance.

    Raises DatasetError: the row has no tests; UnusableTests: they are of no known form.
    """
    entry = _text(row.entry_point, "entry_point")
    tests = _decoded(row.tests)
    if isinstance(tests, Mapping):
        return _of_object(tests, row, entry, tolerance)
    if isinstance(tests, Sequence) and not isinstance(tests, str) and tests and isinstance(tests[0], Mapping):
        return _of_pairs(tests, row, entry, tolerance)
    sources = (*_sources(tests, "tests"), *_sources(row.test, "test"), *_sources(row.test_list, "test_list"))
    if sources:
        imports = _sources(row.test_imports, "test_imports")
        before = "\n".join([*imports, _text(row.test_setup_code, "test_setup_code").replace("\r\n", "\n")]).strip()
        return Task(entry, _code_prompt(row.prompt, entry), sources, before)
    inputs, outputs = _decoded(row.inputs), _decoded(row.outputs)
    if inputs is not None and outputs is not None:
        return _of_examples(inputs, outputs, _text(row.fn_name, "fn_name") or entry, row, tolerance)
    raise DatasetError("the row has no tests. Give it a column tests, test or test_list, or inputs and outputs.")


def _of_object(tests: Mapping[str, Any], row: Columns, entry: str, tolerance: float) -> Task:
    name = _text(tests.get("fn_name"), "fn_name") or _text(row.fn_name, "fn_name") or entry
    if isinstance(tests.get("test_cases"), Sequence):
        return _of_pairs(tests["test_cases"], row, name, tolerance)
    inputs = next((tests[key] for key in _INPUTS if tests.get(key) is not None), None)
    outputs = next((tests[key] for key in _OUTPUTS if tests.get(key) is not None), None)
    if inputs is not None and outputs is not None:
        return _of_examples(inputs, outputs, name, row, tolerance)
    sources = next((_sources(tests[key], key) for key in _SOURCES if tests.get(key)), ())
    if not sources:
        raise UnusableTests(f"tests of no known form, with the keys: {', '.join(map(str, tests)) or 'none'}")
    before = _text(tests.get("test_setup_code") or row.test_setup_code, "test_setup_code")
    return Task(entry, _code_prompt(row.prompt, entry), sources, before)


def _of_pairs(tests: Sequence[Any], row: Columns, entry: str, tolerance: float) -> Task:
    sources = [
        _sources(each[key], key) for each in tests for key in _SOURCES if isinstance(each, Mapping) and each.get(key)
    ]
    if len(sources) == len(tests):
        return Task(entry, _code_prompt(row.prompt, entry), tuple(text for texts in sources for text in texts))
    try:
        inputs = [next(each[key] for key in _INPUTS if key in each) for each in tests]
        outputs = [next(each[key] for key in _OUTPUTS if key in each) for each in tests]
        names = {_text(each.get("fn_name"), "fn_name") for each in tests} - {""}
    except (StopIteration, AttributeError, TypeError) as error:
        raise UnusableTests("a list of tests in which one has no input or no output") from error
    named = names.pop() if names else _text(row.fn_name, "fn_name") or entry
    return _of_examples(inputs, outputs, named, row, tolerance)


def _of_examples(inputs: Any, outputs: Any, name: str, row: Columns, tolerance: float) -> Task:
    if isinstance(inputs, str) or not isinstance(inputs, Sequence):
        inputs, outputs = [inputs], [outputs]
    if not isinstance(outputs, Sequence) or isinstance(outputs, str) or len(inputs) != len(outputs) or not inputs:
        raise UnusableTests("inputs and outputs must be lists of the same length, with one item for each test")
    if not name:
        if any(each is None for each in outputs):
            raise UnusableTests("a test of a program that prints has no expected output")
        return Task("", "", inputs=tuple(map(_stream, inputs)), outputs=tuple(map(_stream, outputs)))
    sources = tuple(_call(name, given, wanted, tolerance) for given, wanted in zip(inputs, outputs, strict=True))
    return Task(name, _code_prompt(row.prompt, name), sources)


def _call(name: str, given: Any, wanted: Any, tolerance: float) -> str:
    if isinstance(given, str):
        given = [_json(line) for line in given.split("\n") if line.strip()]
        wanted = _json(wanted) if isinstance(wanted, str) else wanted
    stars, given = ("**", given) if isinstance(given, dict) else ("*", given if isinstance(given, list) else [given])
    leading_name(name)
    return f"assert __near__({name}({stars}{_literal(given)}), {_literal(wanted)}, {tolerance!r})"


def _literal(value: Any) -> str:
    """The source of a value, which needs no name for an infinite number, unlike `repr`."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, float) and not math.isfinite(value):
        return "(1e999 - 1e999)" if math.isnan(value) else "1e999" if value > 0 else "-1e999"
    return repr(value)


def _stream(text: Any) -> bytes:
    if text is None:
        return b""
    if isinstance(text, bytes):
        return text
    if isinstance(text, Sequence) and not isinstance(text, str):
        text = "\n".join(str(line) for line in text if line is not None)
    return str(text).encode("utf-8", "surrogateescape")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _decoded(value: Any) -> Any:
    """What a JSON object or list in a text stands for; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        read = _json(value)
        return value if isinstance(read, str) else read
    return value


def _sources(value: Any, column: str) -> tuple[str, ...]:
    if value is None or value == "" or value == []:
        return ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise UnusableTests(f"'{column}' is neither source text nor a list of source texts")
    return tuple(text.replace("\r\n", "\n") for text in texts if text.strip())


def _text(value: Any, column: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnusableTests(f"'{column}' is no text")
    return value.strip() if column != "test_setup_code" else value


def _code_prompt(prompt: Any, entry_point: str) -> str:
    """The prompt if it is code that begins the entry point, as HumanEval's are, else "".

    Where a method is asked for, code that only precedes a class will do: imports, and the classes of arguments.
    """
    if not isinstance(prompt, str) or not entry_point:
        return ""
    text = prompt.replace("\r\n", "\n")
    if defines(text, leading_name(entry_point)):
        return text
    return f"{text.rstrip()}\n\n" if "." in entry_point and _is_code(text) else ""


def _is_code(text: str) -> bool:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in body)
