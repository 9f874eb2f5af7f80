"""Provides `@sampler`, which turns a function that chooses rows into a callable spec and keeps its types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Protocol

from grpo.plugins._spec.signature import options_of
from grpo.plugins._spec.soundness import spec_fault
from grpo.plugins.decorators import refuse_positional
from grpo.plugins.errors import SpecError
from grpo.plugins.specs import Parameters, SamplerFunction


class SamplerDecorator(Protocol):
    """Makes a sampler of a function that returns row numbers."""

    def __call__(
        self, function: Callable[Parameters, Sequence[int]], /
    ) -> SamplerFunction[Parameters, Sequence[int]]: ...


def sampler(*misplaced: object, version: int = 0, name: str | None = None, fewer: bool = False) -> SamplerDecorator:
    """Makes a sampler of a function `(seen: RowsSeen, *, options)` that returns `seen.count` row numbers.

    It is a function of what it is given: whoever needs random numbers takes `seen.random()`.

    Args:
        version: raise it when it chooses other rows. It may be left out in a file, not in a package.
        name: the public name; default: the function's.
        fewer: it may choose fewer rows than `seen.count`, one at least, where the others are not worth their tokens.

    Raises:
        SpecError: the signature or the metadata is not allowed.

    Example:
        >>> from grpo import RowsSeen, sampler
        >>> @sampler(version=1)
        ... def in_turn(seen: RowsSeen, *, first: int = 0) -> list[int]:
        ...     free = [row for row in range(first, seen.rows) if row not in seen.taken]
        ...     return seen.longest_ago(free)[: seen.count]
        >>> len(in_turn(RowsSeen(rows=5, count=2, step=1)))
        2
    """
    refuse_positional("sampler", misplaced)

    def decorate(function: Callable[Parameters, Sequence[int]], /) -> SamplerFunction[Parameters, Sequence[int]]:
        if not inspect.isfunction(inspect.unwrap(function)):
            raise SpecError(f"{function!r:.80} is not a function. Decorate a function; it may call an object of yours.")
        parameters = inspect.signature(function).parameters.values()
        read = [
            str(parameter).partition(":")[0] for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY
        ]
        if read != ["seen"]:
            raise SpecError(
                f"'{function.__qualname__}': it is given 'seen' alone, and takes: {', '.join(read) or 'nothing'}. "
                "Write (seen, *, options), each option as a keyword-only parameter."
            )
        spec: SamplerFunction[Parameters, Sequence[int]] = SamplerFunction(
            name=name or function.__name__,
            version=version,
            function=function,
            doc=inspect.getdoc(function) or "",
            options=options_of(function),
            fewer=fewer,
        )
        if fault := spec_fault("sampler", spec):
            raise SpecError(f"{fault}.")
        return spec

    return decorate
