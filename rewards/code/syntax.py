"""Answers questions about parsed Python for the modules that plan tests."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from grpo.rewards.code.guest.plain import NotPlain, encode

Node = TypeVar("Node", bound=ast.AST)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LARGEST_BASE, _LARGEST_FACTOR = 200, 10_000


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def find(within: ast.AST | Iterable[ast.AST], *kinds: type[Node]) -> list[Node]:
    """Returns the nodes of these kinds in a node, or in several, which may be among them."""
    tops = [within] if isinstance(within, ast.AST) else within
    return [node for top in tops for node in ast.walk(top) if isinstance(node, kinds)]


def names_in(within: ast.AST | Iterable[ast.AST], context: type[ast.expr_context] = ast.expr_context) -> list[str]:
    """Returns the names in nodes, as often as they stand there: all, or those that are loaded or stored."""
    return [node.id for node in find(within, ast.Name) if isinstance(node.ctx, context)]


def mentions(node: ast.AST, names: Collection[str]) -> bool:
    """Returns whether a node mentions one of the names."""
    return any(name in names for name in names_in(node))


def called(node: ast.AST) -> str:
    """Returns the name of the function or method that a call calls, "" of anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def called_by_name(node: ast.AST) -> str:
    """Returns the name of the function that a call calls, "" where it calls a method or is none."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def literal(node: ast.expr) -> tuple[Any] | None:
    """Returns the value that stands in a node, as `encode` writes it."""
    if not all(map(_is_cheap, ast.walk(node))):
        return None
    try:
        value = eval(compile(ast.fix_missing_locations(ast.Expression(node)), "<tests>", "eval"), {"__builtins__": {}})
        return (encode(value),)
    except (NotPlain, SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError, NameError):
        return None


def _is_cheap(node: ast.AST) -> bool:
    """Whether a node may be computed here: no name, and no number of a million digits."""
    if isinstance(node, ast.BinOp):
        sizes = [each.value for each in find(node, ast.Constant) if type(each.value) is int]
        most = max(map(abs, sizes), default=0)
        if isinstance(node.op, ast.Pow):
            return most <= _LARGEST_BASE and len(sizes) == 2
        texts = any(isinstance(each.value, str | bytes) for each in find(node, ast.Constant))
        numbers = isinstance(node.op, ast.Mult) and not texts and not find(node, ast.List, ast.Tuple)
        return isinstance(node.op, ast.Add | ast.Sub) or numbers or most <= _LARGEST_FACTOR
    known = ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.Starred | ast.UnaryOp
    return isinstance(node, known | ast.expr_context | ast.operator | ast.unaryop)


def assigned_once(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Returns the names that are given one value, with that value as it stood in the tests."""
    stored = names_in(body, ast.Store)
    single = [node for node in find(body, ast.Assign) if len(node.targets) == 1]
    values = {ast.unparse(node.targets[0]): copy.deepcopy(node.value) for node in single}
    return {name: value for name, value in values.items() if stored.count(name) == 1}


def related_names(every: Sequence[ast.stmt], names: Collection[str]) -> set[str]:
    """Returns the names that stand in a statement with the solution, or with another such name."""
    heads: list[Any] = [[node.target, node.iter] for node in find(every, ast.For, ast.AsyncFor)]  # type: ignore[attr-defined]
    heads += [node.items for node in find(every, ast.With, ast.AsyncWith)]  # type: ignore[attr-defined]
    groups = [
        set(names_in(each)) - vars(builtins).keys()
        for each in (*find(every, ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr), *heads)
    ]
    related, before = set(names), 0
    while before < len(related):
        before = len(related)
        related.update(*(group for group in groups if group & related))
    return related


def bindings(every: Iterable[ast.AST]) -> list[tuple[Any, ast.expr, bool]]:
    """Returns the targets of statements and loops, the value that they get, and whether they get its items."""
    nodes: list[Any] = find(every, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)
    loops: list[Any] = find(every, ast.For, ast.AsyncFor, ast.comprehension)
    given = [(getattr(node, "targets", None) or node.target, node.value, False) for node in nodes if node.value]
    return given + [(node.target, node.iter, True) for node in loops]


def derived_names(every: Iterable[ast.AST], calls: Iterable[ast.Call]) -> set[str]:
    """Returns the names of what is made of the values of calls, or of what has such a name."""
    sources = set(map(id, calls))
    bound = [(names_in(targets), value) for targets, value, _ in bindings(every)]
    made = [any(id(part) in sources for part in ast.walk(value)) for _, value in bound]
    derived: set[str] = set()
    for _ in bound:
        derived.update(
            *(names for is_made, (names, value) in zip(made, bound, strict=True) if is_made or mentions(value, derived))
        )
    return derived


def judge_call(name: str, *given: Any) -> ast.Call:
    """Returns a call of a function of the judge with nodes or values."""
    nodes = [each if isinstance(each, ast.expr) else ast.Constant(each) for each in given]
    return ast.Call(ast.Constant(name), nodes, [])


def watched(begin: ast.Call, body: list[ast.stmt], end: str, *given: Any, error: str) -> ast.stmt:
    """Returns statements that run if the judge begins them; it is told, by its function `end`, how they ended.

    No object of the judge can be found in the code.
    """
    frame: Any = ast.parse(f"if 0:\n try: 0\n except BaseException as {error}: 0\n else: 0").body[0]
    frame.test, [attempt] = begin, frame.body
    attempt.body = body
    attempt.handlers[0].body = [ast.Expr(judge_call(end, *given, ast.Name(error, ast.Load())))]
    attempt.orelse = [ast.Expr(judge_call(end, *given, None))]
    return frame  # type: ignore[no-any-return]
