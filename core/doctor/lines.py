"""What is said of one thing that a run needs, and how a look that hangs or raises becomes such a line too."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

State = Literal["ok", "warning", "error"]
LONGEST = 400  # characters of what somebody else said
_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_SECRET = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|xox[bp]-|AKIA)[\w-]{8,}|(?i:(?:token|key|secret|password)=)\S+")


@dataclass(frozen=True, slots=True)
class Line:
    """What is said of one thing.

    Attributes:
        about: the thing, in a word or two.
        state: ok; warning (something is slower, or does not work that not everybody needs); error (runs fail).
        text: what was found.
        next: what to do, "" where nothing is to be done.
    """

    about: str
    state: State
    text: str
    next: str = ""

    def as_json(self) -> dict[str, Any]:
        """Returns the entry of `grpo doctor --json`."""
        return asdict(self)


Look = Callable[[], Iterable[Line]]


def looked(about: str, look: Look, seconds: float) -> list[Line]:
    """Looks at something, within a time.

    Args:
        about: what is said of a look that does not end, or raises.
        look: returns the lines; it may be left behind in its thread, so it holds nothing that others wait for.
        seconds: the most that it may take.
    """
    found: list[Line] = []

    def work() -> None:
        try:
            found.extend(look())
        except Exception as error:  # whatever a broken installation raises
            said = f"{type(error).__name__}: {error}"
            found.append(Line(about, "error", f"could not be looked at: {said}", "mend this first"))

    thread = threading.Thread(target=work, name=f"doctor-{about}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return [Line(about, "error", f"no answer within {seconds:g} s", "see what holds it; a busy machine is enough")]
    return [Line(one.about, one.state, shown(one.text), shown(one.next)) for one in found]


def shown(text: str) -> str:
    """Returns a text that may be shown to strangers: on one line, without credentials, with ~ for the home folder."""
    text = " ".join(text.split()).replace(str(Path.home()), "~") if Path.home() != Path("/") else " ".join(text.split())
    text = _SECRET.sub("(secret)", _CREDENTIALS.sub("//(secret)@", text))
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
