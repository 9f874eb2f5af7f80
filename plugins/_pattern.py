"""Regular expressions that are compiled when they are first used: a pattern's text in, what `re.compile` returns out.

Whoever lists plugins imports every reward and matches nothing; compiling the patterns of all of them took a quarter of
that time.

Theory of operation. The object has nothing of its own but the text. Asked for a method or attribute, it compiles, and
takes over all that the compiled pattern has; from then on a call costs some 50 ns more than one on the pattern itself.
Two threads that ask at once compile twice and store the same. A text that is no pattern is found when it is first used,
so a test uses all of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Returns the compiled pattern, or what becomes it when it is first used.

    Raises re.error: at the first use; the text is no pattern.
    """
    return cast("re.Pattern[AnyStr]", LazyPattern(text, flags))


class LazyPattern:
    """A pattern that waits to be compiled."""

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
