"""Defines the tree of deliberate errors; every one says what happened, why, and what to do next.

GrpoError
├── UsageError               the command line, a configuration value, a SPEC (exit code 2)
│   ├── PluginNotFound       no plugin of that kind and name
│   ├── AmbiguousName        several distributions offer the name, or a file several plugins
│   ├── NotInstalled         a program or a module that a plugin needs (says how to install it)
│   ├── OptionError          an option is unknown, missing or of the wrong type
│   └── DatasetError         a row, a file or a split that cannot be used (names file and line)
├── PluginError              a plugin breaks the contract (names plugin, distribution and hook)
│   └── SpecError            a decorated function whose signature the contract does not allow
├── RunError                 a run that had to stop (exit code 1); its directory resumes
├── SandboxUnavailable       this machine cannot isolate programs (names what is missing and the remedy)
├── SessionError             a session cannot do what it was asked (the caller's fault, or a file that is not there)
├── SessionLost              a session is gone or never came up: nothing is known about its episode
└── TransientError           raised by plugins for trouble worth a retry (network, rate limit)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from json import JSONDecodeError


class GrpoError(Exception):
    """Root of every error that grpo raises on purpose."""


class UsageError(GrpoError):
    """Something the user wrote cannot be used; raised before any model loads."""


class PluginNotFound(UsageError):
    """No plugin of that kind has that name."""


class AmbiguousName(UsageError):
    """A short name is offered by more than one distribution, or a file without a name offers more than one plugin."""


class NotInstalled(UsageError):
    """A program or a module that a plugin needs is not installed."""


class OptionError(UsageError):
    """An option of a plugin is unknown, missing, or has a value of the wrong type."""


class DatasetError(UsageError):
    """A dataset cannot be used: missing file, broken line, missing column, unusable gold answer."""


class PluginError(GrpoError):
    """A plugin breaks the contract."""


class SpecError(PluginError):
    """A function cannot become a spec: its signature is not one that the contract allows."""


class RunError(GrpoError):
    """A run had to stop; what it wrote so far is kept and resumes."""


class SandboxUnavailable(GrpoError):
    """A sandbox cannot run on this machine: a protection or a service is missing."""


class SessionError(GrpoError):
    """A session cannot do what it was asked: a file is not there, or it lacks the capability."""


class SessionLost(GrpoError):
    """A session is gone, or never came up; nothing is known about the episode that it was for."""


class TransientError(GrpoError):
    """Raise this from a plugin when trying again may help (network trouble, a rate limit)."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the closest known word (case does not count), or "" when none is close."""
    import difflib

    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return f" Did you mean '{folded[close[0]]}'?" if close else ""


def json_fault(error: JSONDecodeError) -> str:
    """Returns "Expecting value at column 3" for what is wrong with one line of JSON."""
    return f"{error.msg.removesuffix(' at')} at column {error.colno}"


def plural(kind: str) -> str:
    """Returns "rewards", "losses"."""
    return f"{kind}es" if kind.endswith(("s", "x")) else f"{kind}s"


def with_article(noun: str) -> str:
    """Returns "a reward", "an env"."""
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"
