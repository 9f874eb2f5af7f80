"""No test depends on how fast a machine is: none asserts anything of a clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
CLOCKS = {
    f"{name}{unit}" for name in ("monotonic", "perf_counter", "process_time", "thread_time") for unit in ("", "_ns")
}
CLOCKS |= {"time.time", "time.time_ns"}
OF_A_PAGE = re.compile(r"\bperformance\.|\bDate\.now\b|\bnew Date\b")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def reads_clock(node: ast.AST, names: set[str]) -> bool:
    """Says whether an expression calls a clock, or uses one of the names that hold what a clock said.

    A text with the time in it is the name of something.
    """
    texts = {id(one) for text in ast.walk(node) if isinstance(text, ast.JoinedStr) for one in ast.walk(text)}
    for part in (part for part in ast.walk(node) if id(part) not in texts):
        if isinstance(part, ast.Call) and {ast.unparse(part.func), ast.unparse(part.func).rpartition(".")[2]} & CLOCKS:
            return True
        if isinstance(part, ast.Name | ast.Attribute) and ast.unparse(part) in names:
            return True
    return False


def clock_names(scope: ast.AST) -> set[str]:
    """Returns the names in a function, or at the top of a module, that are given what a clock said."""
    names: set[str] = set()
    while True:
        before = len(names)
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                pairs = [
                    (part, value)
                    for target in targets
                    for part, value in (
                        zip(target.elts, node.value.elts, strict=False)
                        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                        else [(target, node.value)]
                    )
                ]
                names |= {ast.unparse(part) for part, value in pairs if value is not None and reads_clock(value, names)}
        if len(names) == before:
            return names


def compared_clocks(source: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each assertion that compares a clock, and each script that asks a page for one.

    `assert time.monotonic() < deadline` in a loop that waits is none of them: it is how such a loop gives up.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and OF_A_PAGE.search(node.value):
            yield node.lineno, "what the clock of a page says"
    waits = {id(one) for loop in ast.walk(tree) if isinstance(loop, ast.While) for one in ast.walk(loop)}
    for scope in (node for node in ast.walk(tree) if isinstance(node, SCOPES)):
        names = clock_names(scope)
        for node in ast.walk(scope):
            if isinstance(node, ast.Assert) and id(node) not in waits:
                compares = (part for part in ast.walk(node.test) if isinstance(part, ast.Compare))
                if any(reads_clock(part, names) for part in compares):
                    yield node.lineno, ast.unparse(node.test)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def test():\n    began = time.monotonic()\n    assert time.monotonic() - began < 5", [3]),
        ("def test():\n    took = perf_counter() - 1\n    late = took > 3\n    assert not late == True", [4]),
        ("def test():\n    start, x = time.time(), 1\n    y = 2\n    assert x < y\n    assert start < y", [5]),
        ("def test():\n    while not done():\n        assert time.monotonic() < deadline", []),
        ("def test():\n    began = time.monotonic()\n\ndef other():\n    began = 1\n    assert began == 1", []),
        ("def test():\n    path = f'{time.monotonic_ns()}'\n    assert path != 'x'", []),
        ("def test():\n    assert set(timings(time.sleep)) == {'began'}", []),
        ("LATER = 'performance" + ".now() - before'", [1]),
    ],
    ids=[
        "a difference",
        "a name",
        "a pair",
        "a loop that waits",
        "the name of another test",
        "a text",
        "no clock",
        "a page",
    ],
)
def test_a_comparison_of_a_clock_is_found(source: str, lines: list[int]) -> None:
    assert [line for line, _ in compared_clocks(source)] == lines


def test_no_assertion_compares_a_clock() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: assert {text}"
        for path in sorted(ROOT.rglob("*.py"))
        for line, text in compared_clocks(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "count, order or wait instead: tests/support/patience.py"
