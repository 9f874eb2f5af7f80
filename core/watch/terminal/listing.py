"""The rollouts that somebody chose, while more are recorded: choices and words in, places in order out."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from grpo.core.record.browse import Rollout
from grpo.core.watch.followed import FollowedRun
from grpo.core.watch.terminal.choices import Choices, matching, ordered
from grpo.plugins.errors import UsageError


class Listing:
    """What is listed of a run; it grows with the run.

    Args:
        run: the run.
        choices: which of its rollouts.
        words: what their texts have to hold, whatever the case; "" for no search.

    Attributes:
        places: in the index of the run, in order.
        unread: steps whose file could not be searched.
    """

    def __init__(self, run: FollowedRun, choices: Choices, words: str = "") -> None:
        self.choices, self.words = choices, words
        self.places: list[int] = []
        self.unread = 0
        self._run, self._index, self._scan = run, run.index, run.scan
        self._checked = self._searched = 0
        self._matched: list[int] = []
        self._found: list[int] = []
        self.take_in()

    @property
    def current(self) -> bool:
        """False where the run went on from an earlier step, so that places are other ones."""
        return self._index is self._run.index

    @property
    def share(self) -> float:
        """How much of it was searched, from 0 to 1."""
        return self._searched / len(self._matched) if self.words and self._matched else 1.0

    def take_in(self) -> None:
        """Looks at what was recorded since."""
        count = self._index.count
        self._matched += matching(self._index, self._scan, self.choices, range(self._checked, count))
        self._checked = count
        self._arrange()

    def named(self, place: int | None) -> tuple[int, int] | None:
        """Returns step and number of one of its rollouts, by which it is found when places are other ones."""
        columns = self._index.columns
        return None if place is None else (columns["step"][place], columns["number"][place])

    def search(self, seconds: float) -> None:
        """Reads the texts of steps that were not searched yet, for about so long."""
        until = time.monotonic() + seconds
        steps, numbers = self._index.columns.get("step", []), self._index.columns.get("number", [])
        matched, words = self._matched, self.words.lower()
        while self._searched < len(matched) and time.monotonic() < until:
            first = self._searched
            step, end = steps[matched[first]], first
            while end < len(matched) and steps[matched[end]] == step:
                end += 1
            try:
                rollouts: Sequence[Rollout] = self._run.rollouts(step)
            except UsageError:
                rollouts, self.unread = (), self.unread + 1
            members = [place for place in matched[first:end] if numbers[place] < len(rollouts)]
            self._found += [place for place in members if has_words(rollouts[numbers[place]], words)]
            self._searched = end
        self._arrange()

    def _arrange(self) -> None:
        chosen = self._found if self.words else self._matched
        self.places = ordered(self._index, self._scan, self.choices, list(chosen))


def has_words(rollout: Rollout, words: str) -> bool:
    """True where a text of a rollout holds the words, which are in lower case."""
    if words in rollout.completion.lower():
        return True
    told = (*rollout.prompt, *rollout.messages)
    if any(words in str(message.get("content") or "").lower() for message in told):
        return True
    columns = (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in rollout.columns.values()
    )
    return any(words in value.lower() for value in columns)
