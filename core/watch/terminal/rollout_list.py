"""The list of rollouts: places in the index of a run in, lines out. Only the lines in sight are made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual import work
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from grpo.core.watch.followed import FollowedRun
from grpo.core.watch.terminal.blocks import number, signed

HEADINGS = f"  {'step':>5} {'group':>5} {'#':>4} {'verdict':<7} {'reward':>7} {'advant.':>7} {'tokens':>6}  completion"
MOST_WANTED = 64  # steps; whoever scrolls on does not wait for what went by


class RolloutList(ScrollView):
    """A line for each rollout.

    Args:
        run: whose they are.
    """

    class Chosen(Message):
        """Another rollout is chosen."""

    def __init__(self, run: FollowedRun) -> None:
        super().__init__(id="list")
        self.can_focus = False  # keys are the app's
        self._run = run
        self.places: Sequence[int] = ()
        self.place: int | None = None
        self._at = 0
        self._wanted: list[int] = []
        self._reading = False

    @property
    def at(self) -> int:
        """The line that is chosen."""
        return self._at

    def show(self, places: Sequence[int], place: int | None, top: int | None) -> None:
        """Shows other places, or more of them.

        Args:
            places: in order.
            place: that is chosen; where it is none of them, the first is.
            top: that is to stand in the first line in sight, or None for the place that was chosen.
        """
        offset = self.scroll_offset.y
        before = self.place
        self.places = places
        self._at = self._line_of(place) or 0
        self.place = places[self._at] if places else None
        self.virtual_size = Size(self.size.width, len(places))
        line = self._line_of(top)
        if line is not None:
            offset = line
        self.scroll_to(y=min(offset, self.max_scroll_y), animate=False, force=True, immediate=True)
        if line is None:
            self._reveal()
        self.refresh()
        if self.place != before or self.place != place:
            self.post_message(self.Chosen())

    @property
    def top(self) -> int | None:
        """The place in the first line in sight."""
        line = self.scroll_offset.y
        return self.places[line] if line < len(self.places) else None

    def move(self, by: int) -> None:
        """Chooses another line."""
        at = max(0, min(len(self.places) - 1, self._at + by))
        if not self.places or self.places[at] == self.place:
            return
        self._at, self.place = at, self.places[at]
        self._reveal()
        self.refresh()
        self.post_message(self.Chosen())

    def render_line(self, y: int) -> Strip:
        """Returns a line in sight."""
        line = y + self.scroll_offset.y
        width = self.size.width
        if line >= len(self.places):
            return Strip.blank(width, self.rich_style)
        place, chosen = self.places[line], line == self._at
        columns = self._run.index.columns
        step, own = columns["step"][place], columns["number"][place]
        verdict, style = self._verdict(place)
        excerpt = self._run.excerpt(step, own)
        if excerpt is None:
            self._want(step)
        reward, advantage = number(columns["reward"][place]), signed(columns["advantage"][place])
        base = self.rich_style + Style(reverse=chosen, bold=chosen)
        parts = [
            Segment(f"{'>' if chosen else ' '} {step:>5} {columns['group'][place]:>5} {own:>4} ", base),
            Segment(f"{verdict:<7}", base + style),
            Segment(f" {reward:>7} {advantage:>7} {columns['tokens'][place]:>6}  {excerpt or ''}", base),
        ]
        return Strip(parts).adjust_cell_length(width, base)

    def on_resize(self) -> None:
        """Keeps the chosen line in sight."""
        self.virtual_size = Size(self.size.width, len(self.places))
        self._reveal()

    def _verdict(self, place: int) -> tuple[str, Style]:
        columns = self._run.index.columns
        if columns["failed"][place]:
            return "failed", Style(color="red")
        if columns["verdict"][place]:
            right = columns["verdict"][place] == 2
            return ("right", Style(color="green")) if right else ("wrong", Style(color="yellow"))
        return "", Style()

    def _line_of(self, place: int | None) -> int | None:
        try:
            return None if place is None else self.places.index(place)
        except ValueError:
            return None

    def _reveal(self) -> None:
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= self._at < top + height:
            self.scroll_to(y=max(0, self._at - height // 2), animate=False, force=True, immediate=True)

    def _want(self, step: int) -> None:
        if step not in self._wanted:
            self._wanted = [*self._wanted, step][-MOST_WANTED:]
        if not self._reading:
            self._reading = True
            self._read()

    @work
    async def _read(self) -> None:
        """Reads what the lines in sight want, the latest first."""
        while self._wanted:
            await asyncio.to_thread(self._run.read_excerpts, self._wanted.pop())
            self.refresh()
        self._reading = False
