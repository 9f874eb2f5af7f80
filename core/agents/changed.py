"""Says which files of its working directory an agent made, changed or deleted in a session, within limits.

The session's own programs list them, so that the list can be trusted as little as what the agent writes into them.
"""

from __future__ import annotations

from grpo.core.agents.folder import LARGEST_FILE, MOST_BYTES, MOST_FILES
from grpo.plugins.errors import SessionError
from grpo.plugins.session import Session

_MARK = ".grpo-agent/start"  # in HOME
_FILES = ["find", ".", "-xdev", "-type", "f"]
_SECONDS = 60.0


class ChangedFiles:
    """What changes in a folder of a session from now on."""

    def __init__(self, session: Session, directory: str) -> None:
        self._session, self._directory = session, directory
        session.write(f"~/{_MARK}", b"")
        self._before = self._listed()

    def read(self) -> tuple[dict[str, str | None], int]:
        """Returns path to text (None: it was deleted), and how many were over the limits. Raises SessionLost."""
        there = self._listed()
        changed: dict[str, str | None] = dict.fromkeys(sorted(self._before - there)[:MOST_FILES])
        small = self._listed("-size", f"-{LARGEST_FILE // 1024 + 1}k")
        omitted = size = 0
        for path in sorted(self._listed("-cnewer", f"{self._session.home}/{_MARK}") | (there - self._before)):
            room = len(changed) < MOST_FILES and size <= MOST_BYTES - LARGEST_FILE
            text = self._text(path) if room and path in small else None
            if text is None:
                omitted += 1
            else:
                changed[path] = text
                size += len(text)
        return changed, omitted

    def _listed(self, *conditions: str) -> set[str]:
        listing = self._session.run([*_FILES, *conditions, "-print0"], timeout=_SECONDS, directory=self._directory)
        names = listing.stdout.decode(errors="backslashreplace").split("\0")[:-1]  # behind the limit one may be cut
        return {name.removeprefix("./") for name in names}

    def _text(self, path: str) -> str | None:
        try:
            return self._session.read(f"{self._directory}/{path}").decode(errors="replace")
        except SessionError:  # it may not be read, or has holes
            return None
