"""What a program lets be heard: its warnings and log lines in, plain texts out; and there warnings and log lines again.

Theory of operation. Tests listen to `warnings` and `logging` in their own sandbox. What the program says there, in the
other one, travels with the next answer and is said once more where the tests run. So that nothing is lost on the way
the program's side passes on every warning and every line, and the filters and levels of the tests decide.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from grpo.rewards.code.guest.values import Wire

_MOST = 1000
_LONGEST = 10_000


class Heard:
    """Collects the warnings and log lines of the program in this process.

    Args:
        named: the names of the classes of an exception, as they cross.
    """

    def __init__(self, named: Callable[[type], list[Any]]) -> None:
        self._named = named
        self._said: list[Wire] = []

    def listen(self, mentioned: set[str]) -> None:
        """Begins to collect what code with these names may say."""
        if "warnings" in mentioned:
            warnings.simplefilter("always")
            warnings.showwarning = self._warned
        if "logging" in mentioned:
            import logging

            logger: Any = logging.Logger
            plain = logger.isEnabledFor

            def is_enabled_for(self: Any, level: int) -> bool:
                asked_by_logging = sys._getframe(1).f_globals is vars(logging)
                return asked_by_logging or plain(self, level)

            logger.isEnabledFor = is_enabled_for
            logger.callHandlers = self._logged(logger.callHandlers)

    def taken(self) -> list[Wire]:
        """Returns and forgets what was said."""
        said, self._said = self._said, []
        return said

    def _warned(self, message: Any, category: Any, *_: Any, **__: Any) -> None:
        if len(self._said) < _MOST:
            self._said.append(["warning", self._named(category), str(message)[:_LONGEST]])

    def _logged(self, plain: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def call_handlers(logger: Any, record: Any) -> None:
            if len(self._said) < _MOST:
                self._said.append(["log", record.name, record.levelno, record.getMessage()[:_LONGEST]])
            if record.levelno >= logger.getEffectiveLevel():
                plain(logger, record)

        return call_handlers


def say(line: Any, class_of: Callable[[list[Any]], Any]) -> None:
    """Says once more, in this process, what the program said in its own.

    Args:
        line: what `Heard` noted.
        class_of: the class of an exception by its names.

    Raises:
        ValueError, TypeError: it is nothing of the kind.
        Warning: the tests want warnings to be raised.
    """
    kind, what, *rest = line
    if kind == "warning":
        category = class_of(what)
        if not issubclass(category, Warning) or type(rest[0]) is not str:
            raise ValueError("no warning")
        warnings.warn_explicit(rest[0], category, "solution.py", 1, "solution", {})
        return
    level, text = rest
    if kind != "log" or type(what) is not str or type(level) is not int or type(text) is not str:
        raise ValueError("no log line")
    import logging

    logger = logging.getLogger(None if what == "root" else what)
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(what, level, "solution.py", 1, text, (), None))


class Lines:
    """The fixture `caplog`: the log lines of one test."""

    def __init__(self) -> None:
        import logging

        self._levels: list[tuple[Any, int]] = []
        self._logger = logging.getLogger
        self.records: list[Any] = []
        self.handler = _handler(self.records)
        logging.getLogger().addHandler(self.handler)

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    @property
    def record_tuples(self) -> list[tuple[str, int, str]]:
        return [(record.name, record.levelno, record.getMessage()) for record in self.records]

    @property
    def text(self) -> str:
        form = "{0.levelname:<8} {0.name}:{0.filename}:{0.lineno} {1}\n"
        return "".join(form.format(record, record.getMessage()) for record in self.records)

    def clear(self) -> None:
        """Forgets the lines."""
        self.records.clear()

    def set_level(self, level: Any, logger: str | None = None) -> None:
        """Lets lines from a level on through, to the end of the test."""
        chosen = self._logger(logger)
        self._levels.append((chosen, chosen.level))
        chosen.setLevel(level)

    def at_level(self, level: Any, logger: str | None = None) -> _Level:
        """Lets lines from a level on through in a `with` block."""
        return _Level(self._logger(logger), level)

    def end(self) -> None:
        """Listens no more."""
        self._logger().removeHandler(self.handler)
        for logger, level in reversed(self._levels):
            logger.setLevel(level)


def _handler(records: list[Any]) -> Any:
    """Returns a handler that keeps what it is given."""
    import logging

    class Keeping(logging.Handler):
        def emit(self, record: Any) -> None:
            records.append(record)

    return Keeping()


class _Level:
    """Sets the level of a logger in a `with` block."""

    def __init__(self, logger: Any, level: Any) -> None:
        self._logger, self._level, self._before = logger, level, logger.level

    def __enter__(self) -> None:
        """Sets it."""
        self._logger.setLevel(self._level)

    def __exit__(self, *_: object) -> None:
        self._logger.setLevel(self._before)


class warns:  # noqa: N801 - the name that pytest has
    """Expects a warning in a `with` block."""

    def __init__(self, expected: Any = Warning, *, match: str | None = None) -> None:
        self._expected, self._match = expected, match
        self._catching = warnings.catch_warnings(record=True)
        self.list: list[Any] = []

    def __enter__(self) -> list[Any]:
        caught = self._catching.__enter__()
        self.list = [] if caught is None else caught
        warnings.simplefilter("always")
        return self.list

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._catching.__exit__(kind, error, trace)
        if kind is not None:
            return
        found = [str(each.message) for each in self.list if issubclass(each.category, self._expected)]
        if self._match is not None:
            import re

            found = [text for text in found if re.search(self._match, text)]
        if not found:
            raise AssertionError(f"no warning {self._expected} {self._match or ''}".strip())


def offer_warns() -> None:
    """Gives the stand-in of pytest its `warns`."""
    pytest: Any = sys.modules.get("pytest")
    if pytest is not None and not hasattr(pytest, "warns"):
        pytest.warns = warns
        pytest.deprecated_call = lambda: warns((DeprecationWarning, PendingDeprecationWarning))
