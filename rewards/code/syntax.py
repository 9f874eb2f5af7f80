"""Reads parsed Python: the questions that all who plan tests have about it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def words(text: str) -> frozenset[str]:
    """Returns the words of a text."""
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
