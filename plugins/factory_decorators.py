"""Provides `@env`, `@sandbox` and `@session`, which turn a factory into a callable spec and keep its types.

A factory is a function with its options as keyword-only parameters, or a class of which they make an instance. A class
that is only the options of an environment has the method `env()`, which makes it; `rows(split)` may return the rows of
a split, and `ordered` say whether they are trained on in their order. Type checkers differ on decorated classes, so a
class is decorated in an assignment: `SUMS = env(version=1)(Sums)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from grpo.plugins._spec.signature import options_of
from grpo.plugins.decorators import refuse_faults, refuse_positional
from grpo.plugins.errors import SpecError
from grpo.plugins.specs import EnvFunction, EnvSpec, Option, Parameters, SandboxFunction, SessionFunction
from grpo.plugins.types import Row

if TYPE_CHECKING:
    import gymnasium

    from grpo.plugins.sandbox_job import SandboxPool
    from grpo.plugins.session import SessionPool


class EnvOptions(Protocol):
    """The options of an environment."""

    def env(self) -> gymnasium.Env[Any, Any]:
        """Makes the environment."""


class EnvDecorator(Protocol):
    """Makes an environment's spec of its factory."""

    def __call__(
        self, factory: Callable[Parameters, gymnasium.Env[Any, Any] | EnvOptions], /
    ) -> EnvFunction[Parameters]: ...


class SandboxDecorator(Protocol):
    """Makes a sandbox's spec of its factory."""

    def __call__(self, factory: Callable[Parameters, SandboxPool], /) -> SandboxFunction[Parameters]: ...


class SessionDecorator(Protocol):
    """Makes a session's spec of its factory."""

    def __call__(self, factory: Callable[Parameters, SessionPool], /) -> SessionFunction[Parameters]: ...


@dataclass(frozen=True, slots=True)
class FromOptions:
    """A function of options that makes a `func` of them and returns its `attribute`, called with its own arguments."""

    func: Any
    attribute: str

    def __call__(self, *args: Any, **options: Any) -> Any:
        value = getattr(self.func(**options), self.attribute)
        return value(*args) if callable(value) else value


def env(
    *misplaced: object,
    version: int = 0,
    name: str | None = None,
    dataset: Callable[..., Sequence[Row]] | None = None,
    rewards: Sequence[str] = (),
    verifier: str | None = None,
    max_turns: int = 1,
    scores_itself: bool = False,
    hub_dataset: str | None = None,
    ordered: Callable[..., bool] | None = None,
    resolve: Callable[[str], EnvSpec] | None = None,
    settle: Callable[..., EnvSpec] | None = None,
    note: str = "",
) -> EnvDecorator:
    """Makes an environment's spec of its factory; name, documentation and options are those of the factory.

    The arguments are the attributes of `EnvSpec`, but for these:

    Args:
        version: raise it when the rows, the prompts or the scores change. It may be left out in a file, not in a
            package.
        name: the public name; default: the factory's.

    Raises:
        SpecError: the factory, its options or the metadata are not allowed.

    Example:
        >>> from grpo import env
        >>> def rows(split: str, *, size: int = 2) -> list[dict[str, str]]:
        ...     return [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(size)]
        >>> @env(version=1, dataset=rows, rewards=["proximity"], verifier="gsm8k")
        ... def sums(*, size: int = 2):
        ...     "Asks for small sums."
        ...     from my_package.environment import SumEnv
        ...     return SumEnv(rows("train", size=size))
        >>> sums.name, sums.doc, [option.name for option in sums.options]
        ('sums', 'Asks for small sums.', ['size'])
    """
    refuse_positional("env", misplaced)

    def decorate(factory: Callable[Parameters, gymnasium.Env[Any, Any] | EnvOptions], /) -> EnvFunction[Parameters]:
        options = _options(factory, family=resolve is not None)
        holder = factory if inspect.isclass(factory) and callable(getattr(factory, "env", None)) else None
        make: Callable[..., Any] = factory if holder is None else FromOptions(holder, "env")
        spec: EnvFunction[Parameters] = EnvFunction(
            name=name or factory.__name__,
            version=version,
            factory=make,
            doc=inspect.cleandoc(factory.__doc__ or ""),
            options=options,
            dataset=dataset or (FromOptions(holder, "rows") if hasattr(holder, "rows") else None),
            rewards=rewards if isinstance(rewards, str) else tuple(rewards),  # type: ignore[arg-type]  # refused below
            verifier=verifier,
            max_turns=max_turns,
            scores_itself=scores_itself,
            hub_dataset=hub_dataset,
            ordered=ordered or (FromOptions(holder, "ordered") if hasattr(holder, "ordered") else None),
            resolve=resolve,
            settle=settle,
            note=note,
        )
        refuse_faults(spec)
        if dataset is not None:
            _refuse_other_options(spec.name, dataset, options)
        return spec

    return decorate


def sandbox(
    *misplaced: object, version: int = 0, name: str | None = None, modules: Mapping[str, str] | None = None
) -> SandboxDecorator:
    """Makes a sandbox's spec of its factory; name, documentation and options are those of the factory.

    Args:
        version: raise it when programs come out otherwise.
        name: the public name; default: the factory's.
        modules: the Python modules that it needs, each with a sentence that says how to install it.

    Raises:
        SpecError: the factory, its options or the metadata are not allowed.
    """
    decorator: SandboxDecorator = _pool_decorator(SandboxFunction, "sandbox", misplaced, version, name, modules)
    return decorator


def session(
    *misplaced: object, version: int = 0, name: str | None = None, modules: Mapping[str, str] | None = None
) -> SessionDecorator:
    """Makes a session's spec of its factory, by the arguments of `sandbox`. Raises SpecError as `sandbox` does."""
    decorator: SessionDecorator = _pool_decorator(SessionFunction, "session", misplaced, version, name, modules)
    return decorator


def _pool_decorator(
    made: type[Any],
    kind: str,
    misplaced: tuple[object, ...],
    version: int,
    name: str | None,
    modules: Mapping[str, str] | None,
) -> Any:
    refuse_positional(kind, misplaced)

    def decorate(factory: Callable[..., Any], /) -> Any:
        options = _options(factory, family=False)
        doc = inspect.cleandoc(factory.__doc__ or "")
        spec = made(name or factory.__name__, version, factory, doc, options, modules or {})
        refuse_faults(spec)
        return spec

    return decorate


def _options(factory: Callable[..., Any], family: bool) -> tuple[Option, ...]:
    """Returns the options of a factory; SpecError where it has parameters that no option can fill."""
    if not inspect.isfunction(factory) and not inspect.isclass(factory):
        raise SpecError(f"{factory!r:.80} is neither a function nor a class. Decorate a function that returns it.")
    for parameter in () if family else inspect.signature(factory).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise SpecError(
                f"'{factory.__qualname__}': nothing fills '{parameter}'. Name every option as a keyword-only parameter "
                "(after a bare '*'; of a dataclass, kw_only=True)."
            )
    return options_of(factory)


def _refuse_other_options(name: str, dataset: Callable[..., Any], options: Sequence[Option]) -> None:
    parameters = inspect.signature(dataset).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    taken = [parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY]
    lacking = [option.name for option in options if option.name not in taken]
    if lacking:
        raise SpecError(
            f"env '{name}': its dataset does not take the option '{lacking[0]}', with which it is called. Give it the "
            "keyword-only parameters of the factory."
        )
