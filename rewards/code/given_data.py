"""Decides whether tests certainly give plain data to functions.

Each name has all the values that the tests bind to it anywhere, so that a function with a name is noticed wherever it
is given away. What is not known is no data.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from grpo.rewards.code.guest.customs import SOLUTION_MODULES
from grpo.rewards.code.names import CUSTOMARY
from grpo.rewards.code.syntax import bindings, called_by_name, find, names_in, words

_DATA_FUNCTIONS = words(
    "abs all any ascii bin bool bytearray bytes chr complex dict divmod float format frozenset hex int len list max min"
    " oct ord pow range repr round set sorted str sum tuple"
)
_ITERATOR_FUNCTIONS = words("enumerate filter iter map reversed zip")
_DATA_MODULES = words("bisect cmath copy datetime decimal fractions heapq json math random statistics string")
_DATA_OF = {
    "re": words("sub subn findall split escape"),
    "functools": words("reduce"),
    "collections": words("deque Counter OrderedDict"),
}
_DRAWS = words("choice choices gauss getrandbits randint random randrange sample uniform")
_NO_DATA = words("Random SystemRandom Context getcontext localcontext Template Formatter tzinfo timezone NormalDist")
_Question = Callable[[ast.expr], bool]
_KINDS: tuple[type, ...] = (str, bytes, list, dict, set, int, float, complex)


class GivenData:
    """What tests (`every`) may give to functions; `functions` names those under test, whose answers are plain data."""

    def __init__(self, every: Sequence[ast.stmt], functions: Collection[str]) -> None:
        self._functions = functions
        self._classes = {node.name for node in find(every, ast.ClassDef)}
        self._helpers: dict[str, ast.AST] = {node.name: node for node in find(every, ast.FunctionDef)}
        imports = [alias for node in find(every, ast.Import) for alias in node.names]
        self._modules = {alias.asname or alias.name.partition(".")[0]: alias.name for alias in imports}
        self._imported = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in find(every, ast.ImportFrom)
            if node.module not in SOLUTION_MODULES
            for alias in node.names
        }
        self._entered: set[str] = set()  # functions of the tests that are being looked at
        bound = list(self._bound(every))
        self._others: set[str] = set()  # names that may have another value
        while True:
            more = {name for names, holds, value in bound if value is None or not holds(value) for name in names}
            if more <= self._others:
                return
            self._others |= more

    def _bound(self, every: Sequence[ast.stmt]) -> Iterator[tuple[Collection[str], _Question, ast.expr | None]]:
        """Yields names, what asks whether these get plain data, and the expression that it is asked of, if any."""
        for targets, value, of_items in bindings(every):
            unpacked = isinstance(targets, list) and isinstance(targets[0], ast.Tuple | ast.List)
            yield names_in(targets), self._is_iterated if of_items or unpacked else self.is_data, value
        calls = find(every, ast.Call)
        for node in find(every, ast.AST):
            match node:
                case ast.withitem(optional_vars=ast.expr() as names):
                    yield names_in(names), self.is_data, None
                case ast.ExceptHandler(name=str() as name):
                    yield [name], self.is_data, None
                case ast.FunctionDef():
                    parameters = [each.arg for each in find(node.args, ast.arg)]
                    own = [call for call in calls if called_by_name(call) == node.name]
                    given = [value for call in own for value in (*call.args, *(each.value for each in call.keywords))]
                    for value in (*given, *node.args.defaults):
                        if ast.unparse(value) not in self._functions:
                            yield parameters, self.is_data, value
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name not in self._modules:
                    yield from (([name], self._is_iterated, value) for value in node.args)  # as a method may keep them

    def is_given(self, call: ast.Call) -> bool:
        """Returns whether the arguments of a call are surely plain data."""
        return all(map(self.is_data, (*call.args, *(each.value for each in call.keywords))))

    def _is_iterated(self, node: ast.expr) -> bool:
        if isinstance(node, ast.GeneratorExp):
            return self._is_made(node, node.elt)
        if not isinstance(node, ast.Call):
            return self.is_data(node)
        name = called_by_name(node)
        by_itertools = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "itertools"
        if name in _ITERATOR_FUNCTIONS or by_itertools or self._imported.get(name, ("",))[0] == "itertools":
            return all(map(self._is_iterated, node.args[name in ("map", "filter") :]))
        return self.is_data(node)

    def _is_made(self, node: Any, *parts: ast.expr) -> bool:
        return all(map(self.is_data, parts)) and all(self._is_iterated(each.iter) for each in node.generators)

    def is_data(self, node: ast.expr) -> bool:
        """Returns whether the value of an expression is surely plain data."""
        match node:
            case ast.Name():
                return self._is_datum(node.id)
            case ast.Call():
                return self._gives_data(node)
            case ast.Attribute():
                root = ast.unparse(node.value)
                if root in self._modules:
                    return not callable(_attribute(self._modules[root], node.attr))
                return not any(callable(getattr(kind, node.attr, None)) for kind in _KINDS) and self.is_data(node.value)
            case ast.ListComp() | ast.SetComp():
                return self._is_made(node, node.elt)
            case ast.DictComp():
                return self._is_made(node, node.key, node.value)
            case ast.Starred():
                return self._is_iterated(node.value)
            case ast.Lambda() | ast.GeneratorExp() | ast.Await() | ast.Yield() | ast.YieldFrom():
                return False
        return all(self.is_data(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))

    def _is_datum(self, name: str) -> bool:
        if name in self._imported:
            return not callable(_attribute(*self._imported[name]))
        others = {*self._others, *self._classes, *self._helpers, *self._functions, *self._modules}
        return name not in others and not hasattr(builtins, name) and name not in CUSTOMARY

    def _gives_data(self, node: ast.Call) -> bool:
        function = node.func
        if isinstance(function, ast.Attribute):
            root = ast.unparse(function.value)
            if function.attr in _DRAWS:  # of a random.Random, too
                return all(map(self._is_iterated, node.args))
            module = self._modules.get(root, root if root in _DATA_MODULES | _DATA_OF.keys() else "")
            return _is_data_function(module, function.attr) if module else self._is_iterated(function.value)
        name = called_by_name(node)
        if name in self._functions:
            return True
        if name in self._helpers:
            return name in self._entered or self._returns_data(name)
        if name in self._imported or name in CUSTOMARY:
            return _is_data_function(*self._imported.get(name, (CUSTOMARY.get(name, ""), name)))
        return name in _DATA_FUNCTIONS and all(map(self._is_iterated, node.args))

    def _returns_data(self, name: str) -> bool:
        helper = self._helpers[name]
        self._entered.add(name)
        values = [each.value for each in find(helper, ast.Return) if each.value is not None]
        returns = not find(helper, ast.Yield, ast.YieldFrom) and all(map(self.is_data, values))
        self._entered.discard(name)
        return returns


def _is_data_function(module: str, name: str) -> bool:
    return name in _DATA_OF.get(module, ()) or (module in _DATA_MODULES and name not in _NO_DATA)


def _attribute(module: str, name: str) -> Any:
    """A module of the standard library's attribute; of any other module what is no data."""
    if module not in _DATA_MODULES:
        return print
    return getattr(importlib.import_module(module), name, print)
