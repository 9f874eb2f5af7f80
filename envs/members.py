"""Makes the spec of one member of a family of environments, such as `gym:FrozenLake-v1`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from grpo.plugins._spec.signature import RESERVED_OPTIONS
from grpo.plugins.specs import EnvSpec, Option


def member_spec(
    family: EnvSpec,
    member: str,
    make: Callable[..., Any],
    inner: Iterable[tuple[str, Any]] = (),
    taken: Iterable[str] = (),
    **fields: Any,
) -> EnvSpec:
    """Returns the spec of a member of a family; `fields`: further fields of the spec.

    `inner`: options of its own, with defaults, after the family's. `taken`: names that cannot be such options.
    """
    names = {*(option.name for option in family.options), *RESERVED_OPTIONS, *taken}
    own = (Option(name, Any, default) for name, default in inner if name not in names)
    return replace(
        family,
        name=f"{family.name}:{member}",
        factory=partial(make, member),
        options=(*family.options, *own),
        resolve=None,
        **fields,
    )
