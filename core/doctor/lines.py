"""Defines a line of a diagnosis, and makes one of a diagnosis that hangs or raises."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from grpo.core.text.secrets import without_secrets

State = Literal["ok", "warning", "error"]
LONGEST = 400  # characters of what somebody else said
SHORTEST = 6  # characters of a variable that is taken for a secret
_VARIABLE = re.compile(r"(?i)token|key|secret|passw|passphrase|pwd$|credential|auth|cookie")


@dataclass(frozen=True, slots=True)
class Line:
    """What is said of one thing."""

    about: str  # the thing, in a word or two
    state: State  # ok; warning (something is slower, or does not work that not everybody needs); error (runs fail)
    text: str  # what was found
    next: str = ""  # what to do, "" where nothing is to be done

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def line_of(about: str, text: str, advice: str, *, wrong: bool, state: State = "warning") -> Line:
    """Returns a line that is ok, or what it is where something is wrong, with advice."""
    return Line(about, state, text, advice) if wrong else Line(about, "ok", text)


Look = Callable[[], Iterable[Line]]


def looked(about: str, look: Look, seconds: float) -> list[Line]:
    """Looks at something in a thread that may be left behind after `seconds`."""
    lines: list[Line] = []

    def work() -> None:
        try:
            lines.extend(look())
        except Exception as error:  # whatever a broken installation raises
            reason = f"{type(error).__name__}: {error}"
            lines.append(Line(about, "error", f"could not be looked at: {reason}", "mend this first"))

    thread = threading.Thread(target=work, name=f"doctor-{about}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return [Line(about, "error", f"no answer within {seconds:g} s", "see what holds it; a busy machine is enough")]
    return [Line(shown(line.about), line.state, shown(line.text), shown(line.next)) for line in lines]


def _values() -> list[str]:
    """Returns what the environment keeps under names of secrets, the longest first; a path or a number is none."""
    values = {value for name, value in os.environ.items() if _VARIABLE.search(name) and len(value) >= SHORTEST}
    secrets = (value for value in values if not value.startswith("/") and not value.isdigit())
    return sorted(secrets, key=len, reverse=True)


def shown(text: str) -> str:
    """Returns a text that may be shown to strangers: on one line, without credentials, with ~ for the home folder."""
    for value in _values():
        text = text.replace(value, "(secret)")
    text = without_secrets(" ".join(text.split()), "(secret)")
    text = text.replace(str(Path.home()), "~") if Path.home() != Path("/") else text
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
