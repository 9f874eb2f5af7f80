"""Makes plugins of functions, classes and specs of a script or notebook, found as `__main__/NAME`."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from grpo.plugins._spec.signature import name_of_function, options_of, written_function
from grpo.plugins._spec.soundness import SPEC_OF_KIND, spec_fault
from grpo.plugins.agent_decorator import agent_of
from grpo.plugins.decorators import reward, verifier
from grpo.plugins.errors import SpecError, UsageError, with_article
from grpo.plugins.from_trl import form_of, from_trl, is_trl_function, of_messages
from grpo.plugins.specs import EnvSpec, Kind, RewardSpec, Spec, VerifierSpec

if TYPE_CHECKING:
    import gymnasium

SCRATCH_VERSION = 0
Function = TypeVar("Function", RewardSpec, VerifierSpec)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
UNWRITTEN = ("__module__", "__firstlineno__", "__static_attributes__")  # of a class, which its source does not say


def reward_of(function: Callable[..., Any], name: str | None = None) -> RewardSpec:
    """Makes a reward without a version of a function, by `from_trl` if in TRL's manner. Raises SpecError."""
    name = name or _name(function)
    if is_trl_function(function):
        return from_trl(function, version=SCRATCH_VERSION, name=name)
    made: RewardSpec = reward(version=SCRATCH_VERSION, name=name)(function)
    return _as_it_reads(made, function)


def verifier_of(function: Callable[..., Any], name: str | None = None) -> VerifierSpec:
    """Makes a verifier without a version of a function. Raises SpecError."""
    made: VerifierSpec = verifier(version=SCRATCH_VERSION, name=name or _name(function))(function)
    return _as_it_reads(made, function)


def _as_it_reads(spec: Function, function: Callable[..., Any]) -> Function:
    """Returns the spec of a plain function, which gets a list of messages where its code reads their keys."""
    if form_of(written_function(function), "completion") == "text":
        return spec
    return replace(spec, function=of_messages(function), whole=True)


def spec_of(kind: Kind, value: object) -> Any:
    """Makes a spec of a Python object: a plain function becomes a reward, verifier or agent of its name.

    A reward in TRL's manner is wrapped. A class of `gymnasium.Env` becomes an environment that scores and judges
    itself, with its attribute `max_turns`. Raises UsageError for anything else.
    """
    spec = _made(kind, value)
    fault = spec_fault(kind, spec)
    if fault:
        raise UsageError(f"what was given as {with_article(kind)} cannot be one: {fault}.")
    return spec


def written_sha256(target: object) -> str | None:
    """Returns the SHA-256 of a function, class or object with what it uses in its module, or None without a source."""
    try:
        parts = list(_sources(target, set()))
    except (OSError, TypeError, RecursionError):
        return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() if parts else None


@dataclass(frozen=True, slots=True)
class TextEnv:
    """The factory of an environment whose class was given."""

    func: type[gymnasium.Env[Any, Any]]  # the class

    def __call__(self, **options: Any) -> gymnasium.Env[Any, Any]:
        """Makes one. Raises UsageError if its actions are no text."""
        from gymnasium import spaces

        made = self.func(**options)
        numbers = (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Dict, spaces.Tuple)
        if isinstance(made.action_space, numbers):
            name = self.func.__name__
            raise UsageError(
                f"env '{name}': its actions are {made.action_space}, and a policy writes text. Register it, "
                f'gymnasium.register("{name}-v0", entry_point={name}), and name it env="gym:{name}-v0": that writes '
                "its observations down and reads its actions."
            )
        return made


def _made(kind: Kind, value: object) -> Spec | object:
    if isinstance(value, tuple(SPEC_OF_KIND.values())):
        return value
    try:
        if kind == "env" and inspect.isclass(value):
            return _env_of(value)
        if kind == "env" and hasattr(value, "reset") and hasattr(value, "step"):
            raise UsageError(
                f"what was given as an env is one environment, and a run plays many side by side. Give its class: "
                f"{type(value).__name__}."
            )
        if kind == "reward" and callable(value):
            return reward_of(value)
        if kind == "verifier" and callable(value):
            return verifier_of(value)
        if kind == "agent" and inspect.isroutine(value):
            return agent_of(value, name=_name(value) or name_of_function(value))
    except SpecError as error:
        raise UsageError(f"what was given as {with_article(kind)} cannot be one: {error}") from error
    return value


def _name(function: Callable[..., Any]) -> str | None:
    return "lambda" if name_of_function(function) == "<lambda>" else None


def _env_of(made: type[Any]) -> EnvSpec:
    import gymnasium

    if not issubclass(made, gymnasium.Env):
        raise UsageError(
            f"the class '{made.__name__}' is not an environment: derive it from gymnasium.Env, with texts as "
            "observations and actions."
        )
    return EnvSpec(
        name=made.__name__,
        version=SCRATCH_VERSION,
        factory=TextEnv(made),
        doc=inspect.getdoc(made) or "",
        options=options_of(made.__init__),
        rewards=("environment",),
        verifier="environment",
        max_turns=getattr(made, "max_turns", 1),
        scores_itself=True,
    )


def _sources(target: Any, visited: set[int]) -> Iterator[str]:
    """Yields the source of a function or class and of what it uses in its module; OSError, TypeError without it."""
    if id(target) in visited:
        return
    visited.add(id(target))
    if inspect.isclass(target):  # whose own source is not found where its module has no file
        for name, value in sorted(vars(target).items()):
            function: Any = inspect.unwrap(getattr(value, "__func__", value)) if not name.startswith("__dict") else None
            if inspect.isfunction(function) and function.__module__ == target.__module__:
                yield from _sources(function, visited)
            elif name not in UNWRITTEN and (text := _written(value)) is not None:
                yield f"{name} = {text}"
    elif inspect.isfunction(target):
        yield inspect.getsource(target)
        known, free = target.__globals__, inspect.getclosurevars(target).nonlocals
        used = {name: known[name] for name in _names(target.__code__) if name in known} | {**free}
        for name, value in sorted(used.items()):
            if (text := _written(value)) is not None:
                yield f"{name} = {text}"
            elif (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == target.__module__:
                yield from _sources(value, visited)
    elif not inspect.isroutine(target):  # an object that is called
        yield from _sources(type(target), visited)
        yield str(_written(getattr(target, "__dict__", {})))


def _names(code: CodeType) -> set[str]:
    """Returns the names that code reads, also inside of its comprehensions and lambdas."""
    inner = [_names(part) for part in code.co_consts if inspect.iscode(part)]
    return {*code.co_names}.union(*inner)


def _written(value: Any) -> str | None:
    """Returns as text a plain value, a pattern, or a collection of such; None for anything else."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"{value.pattern!r} {value.flags}"
    if not isinstance(value, (list, tuple, set, frozenset, dict)):
        return None
    held = itertools.chain(*value.items()) if isinstance(value, dict) else value
    parts = [_written(part) for part in held]
    texts = [part for part in parts if part is not None]
    if len(texts) < len(parts):
        return None
    return f"{type(value).__name__} {sorted(texts) if isinstance(value, (set, frozenset)) else texts}"
