"""Executes a Python file in a module; a plugin in it that is refused leaves the others usable."""

from __future__ import annotations

import ast
from types import ModuleType, TracebackType

from grpo.plugins.errors import GrpoError

_REFUSED = "__grpo_refused__"
_KEEPER = "__grpo_refusal_of__"
_KEPT: dict[str, tuple[type[Exception], ...]] = {"decorated": (GrpoError, TypeError), "assigned": (GrpoError,)}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def execute(content: bytes, file: str, module: ModuleType) -> None:
    """Executes the content of a file as a module. Raises BaseException: what the file raises."""
    refused: dict[str, Exception] = {}
    values = vars(module)
    values |= {_REFUSED: refused, _KEEPER: lambda name, kept: _Refusal(name, _KEPT[kept], refused)}
    tree = ast.parse(content, file)
    tree.body = [_guarded(statement) for statement in tree.body]
    # Not by a loader: it takes bytecode of an earlier content with the same length and second of change.
    exec(compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True), values)


def refused_in(module: ModuleType) -> dict[str, Exception]:
    """Returns the names that could not be defined, and why."""
    refused: dict[str, Exception] = vars(module).get(_REFUSED, {})
    return refused


class _Refusal:
    """Keeps the error of one definition; also where that needs a name that was refused itself."""

    def __init__(self, name: str, kept: tuple[type[Exception], ...], refused: dict[str, Exception]) -> None:
        self._name = name
        self._kept = kept
        self._refused = refused

    def __enter__(self) -> None:
        self._refused.pop(self._name, None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if isinstance(error, NameError) and error.name in self._refused:
            self._refused[self._name] = self._refused[error.name]
            return True
        if isinstance(error, self._kept):
            self._refused[self._name] = error
            return True
        return False


def _guarded(statement: ast.stmt) -> ast.stmt:
    """Returns a decorated definition, or an assignment of what a call returns, so that its refusal is kept."""
    first_line: ast.AST
    if isinstance(statement, _DEFINITIONS) and statement.decorator_list:
        name, first_line, kept = statement.name, statement.decorator_list[0], "decorated"
    elif (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Call)
    ):
        name, first_line, kept = statement.targets[0].id, statement.value, "assigned"
    else:
        return statement
    keeper = ast.Call(ast.Name(_KEEPER, ast.Load()), [ast.Constant(name), ast.Constant(kept)], [])
    return ast.copy_location(ast.With([ast.withitem(keeper)], [statement]), first_line)
