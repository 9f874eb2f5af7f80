"""Compiles regular expressions at their first use; tests use all of them, since an invalid one shows only then."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Returns what becomes the compiled pattern at its first use, which raises re.error for an invalid one."""
    return cast("re.Pattern[AnyStr]", LazyPattern(text, flags))


class LazyPattern:
    """A pattern that compiles at its first use."""

    def __init__(self, text: Any, flags: int) -> None:
        self._written = (text, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        text, flags = self._written
        compiled: re.Pattern[Any] = re.compile(text, flags)
        self.__dict__.update({known: getattr(compiled, known) for known in dir(compiled) if not known.startswith("_")})
        return getattr(compiled, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyPattern, self._written
