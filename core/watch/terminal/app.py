"""`grpo show RUN --live`: a run and a terminal in; curves, alarms and rollouts on it, until somebody quits.

Theory of operation. One worker asks the run for what is new (`FollowedRun.renew`), a little at a time in a thread, and
shows it; others read the texts that are looked at and search. A place in the index of the run stays that of the same
rollout while the run goes on, so whoever reads keeps theirs. Nothing is animated and the mouse is left to the terminal:
over a slow line every byte counts, and texts are selected as everywhere else.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Key, Resize
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from grpo.core.record.browse import Rollout
from grpo.core.record.run_dir import RunDir
from grpo.core.report.alarms import Alarm
from grpo.core.report.summary import weights_of
from grpo.core.text.printable import counted, one_line
from grpo.core.watch.followed import FollowedRun
from grpo.core.watch.terminal import blocks, overview
from grpo.core.watch.terminal.choices import Choices, parsed, span, written
from grpo.core.watch.terminal.listing import Listing
from grpo.core.watch.terminal.rollout_list import HEADINGS, RolloutList
from grpo.plugins.errors import UsageError

WIDE = 120  # columns, from which a rollout stands beside the list and not in its place
LEAST_WAIT = 2.0  # seconds between looks at the run
SHARE = 10  # the wait is so many times as long as the last look took: large runs are looked at less often
SLICE = 0.25  # seconds of reading between two drawings
HELP = (
    ("j, k", "the next rollout or alarm, the one before"),
    ("Enter, Esc", "open it, or what an alarm is about; back"),
    ("/", "search in texts; without a word, show all again"),
    ("f", "filter and sort: step=3-9 verdict=wrong sort=-reward"),
    (":", "go to a step"),
    ("h, l", "the step before, the step after"),
    ("g", "the group side by side, and back"),
    ("d", "the difference to the best of the group, and back"),
    ("t", "the tokens by log-probability, and back"),
    ("c", "copy the command that shows this group"),
    ("o, r, s", "overview, rollouts, settings"),
    ("arrows", "move in the list, or scroll what is open;"),
    ("", "so do PgUp, PgDn, Home and End"),
    ("?, q", "these keys; quit"),
)
FILTERS = (
    "Filters: step, group (3 or 3-9), env, finish, verdict (right, wrong), failed (any, environment, REWARD), "
    "reward (of min, max, sort), min, max, abstained, sort (reward, advantage, tokens; -reward: highest first)"
)
HINTS = {
    "overview": " r rollouts  s settings  j k choose an alarm  Enter its rollouts  ? keys  q quit",
    "rollouts": " j k move  Enter open  g group  d diff  h l step  / search  f filter  ? keys",
    "settings": " o overview  r rollouts  ? keys  q quit",
}
PROMPTS = {"search": "search: ", "filter": "filter: ", "step": "step: "}


@dataclass(frozen=True, slots=True)
class Opening:
    """Where somebody comes in.

    Attributes:
        choices: which rollouts to list; none for all.
        rollouts: begin with the list of rollouts and not with the overview.
    """

    choices: Mapping[str, str]
    rollouts: bool = False


class Keys(ModalScreen[None]):
    """What each key does."""

    def compose(self) -> ComposeResult:
        """Makes the text."""
        width = max(len(keys) for keys, _ in HELP)
        lines = [Content.assemble((f"{keys:<{width}}  ", "bold"), what) for keys, what in HELP]
        with VerticalScroll(can_focus=False):
            yield Static(Content("\n").join([*lines, Content(""), Content(FILTERS)]))

    def on_key(self, event: Key) -> None:
        """Any key closes it."""
        event.stop()
        self.dismiss()


class LiveApp(App[None]):
    """The screen.

    Args:
        run: the run directory.
        opening: where to begin.

    Raises:
        UsageError: it is no run, or a file of it was damaged.
    """

    CSS = """
    #top, #count, #headings { height: 1; width: 100%; }
    #bottom { height: auto; max-height: 3; width: 100%; }
    #top { text-style: reverse; }
    #bottom, #headings { text-style: dim; }
    #views { height: 1fr; }
    #overview, #settings, #rollouts { height: 100%; display: none; scrollbar-size-vertical: 1; }
    #views .shown { display: block; }
    #facts { margin: 0 1; }
    #alarms { margin: 1 0; height: auto; max-height: 10; border: none; padding: 0 1; scrollbar-size-vertical: 1; }
    #alarms > .option-list--option-highlighted { text-style: reverse; }
    #curves, #settings Static { margin: 0 1; }
    #listing { width: 1fr; }
    #list { scrollbar-size-vertical: 1; overflow-x: hidden; }
    #detail { width: 1fr; display: none; padding: 0 1; scrollbar-size-vertical: 1; }
    #rollouts.wide #detail { display: block; border-left: solid ansi_blue; }
    #rollouts.opened #detail { display: block; }
    #rollouts.opened #listing { display: none; }
    #rollouts.wide #listing { display: block; }
    #rollouts.wide.opened #detail { border-left: heavy ansi_blue; }
    #detail .head { text-style: bold; margin-top: 1; }
    #detail .quoted { border-left: outer ansi_blue; padding-left: 1; }
    #asked { display: none; height: 1; }
    #asked.shown { display: block; }
    #asked Static { width: auto; }
    #asked Input { height: 1; border: none; padding: 0; width: 1fr; background: ansi_default; }
    #asked Input > .input--cursor { text-style: reverse; color: ansi_default; background: ansi_default; }
    Keys { align: center middle; background: ansi_default; }
    Keys VerticalScroll {
        width: 90%; max-width: 90; height: auto; max-height: 90%; border: solid ansi_blue; padding: 0 1;
    }
    """
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    BINDINGS = [  # noqa: RUF012
        *(
            Binding(key, f"view('{view}')")
            for key, view in zip("ors", ("overview", "rollouts", "settings"), strict=True)
        ),
        Binding("j", "next(1)"),
        Binding("k", "next(-1)"),
        Binding("down", "go(1, 0)"),
        Binding("up", "go(-1, 0)"),
        Binding("pagedown,space", "go(0, 1)"),
        Binding("pageup", "go(0, -1)"),
        Binding("home", "end(False)"),
        Binding("end,G", "end(True)"),
        Binding("h", "step(-1)"),
        Binding("l", "step(1)"),
        Binding("enter", "open"),
        Binding("escape", "leave"),
        Binding("slash", "ask('search')"),
        Binding("f", "ask('filter')"),
        Binding("colon", "ask('step')"),
        Binding("g", "mode('group')"),
        Binding("d", "mode('difference')"),
        Binding("t", "mode('tokens')"),
        Binding("c", "copy"),
        Binding("question_mark", "keys"),
        Binding("q", "quit"),
        Binding("ctrl+c", "quit", priority=True),
    ]

    def __init__(self, run: RunDir, opening: Opening | None = None) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"  # the terminal's own colours, whatever its background
        self.animation_level = "none"
        self._followed = FollowedRun(run)
        self._opening = opening or Opening({})
        self._listing = Listing(self._followed, {})
        self._view = "overview"
        self._mode = ""
        self._opened = False
        self._asking = ""
        self._said = ""
        self._trouble = ""
        self._since = ""
        self._alarms: list[Alarm] = []
        self._searching: Listing | None = None

    def compose(self) -> ComposeResult:
        """Makes the widgets."""
        yield Static(id="top")
        with Vertical(id="views"):
            with VerticalScroll(id="overview", can_focus=False):
                yield Static(id="facts")
                alarms = OptionList(id="alarms", markup=False)
                alarms.can_focus = False
                yield alarms
                yield Static(id="curves")
            with Horizontal(id="rollouts"):
                with Vertical(id="listing"):
                    yield Static(id="count")
                    yield Static(Content(HEADINGS), id="headings")
                    yield RolloutList(self._followed)
                yield VerticalScroll(id="detail", can_focus=False)
            with VerticalScroll(id="settings", can_focus=False):
                yield Static(overview.settings(self._followed.config, self._followed.versions))
        with Horizontal(id="asked"):
            yield Static(id="question")
            yield Input(id="answer", select_on_focus=False)
        yield Static(id="bottom")

    def on_mount(self) -> None:
        """Begins to follow the run."""
        self.query_one("#answer", Input).can_focus = False
        self.action_view("rollouts" if self._opening.rollouts else "overview")
        self._choose(self._opening.choices)
        self._follow()

    def on_resize(self, event: Resize) -> None:
        """Puts a rollout beside the list where there is room."""
        self.query_one("#rollouts").set_class(event.size.width >= WIDE, "wide")
        self._draw()
        self._draw_overview(event.size.width)

    # What is new

    @work
    async def _follow(self) -> None:
        while True:
            began = time.monotonic()
            try:
                changed = await asyncio.to_thread(self._followed.renew, SLICE)
            except Exception as error:  # of a damaged run too, what can be seen is shown
                self._trouble = one_line(str(error) or type(error).__name__, 200)
            else:
                self._trouble, self._since = "", time.strftime("%H:%M:%S")
                if changed:
                    self._take_in()
            self._draw()
            if self._trouble or not self._followed.waiting:
                await asyncio.sleep(max(LEAST_WAIT, SHARE * (time.monotonic() - began)))

    def _take_in(self) -> None:
        if self._listing.current:
            self._listing.take_in()
            self._show_listing()
        else:  # the run went on from an earlier step
            rows = self.query_one(RolloutList)
            named = self._listing.named(rows.place)
            self._listing = Listing(self._followed, self._listing.choices, self._listing.words)
            rows.show(self._listing.places, named and self._followed.find(*named), None)
            self._show_detail()  # which may be another one by now
        self._search(self._listing)
        self._draw_overview(self.size.width)

    def _draw_overview(self, width: int) -> None:
        run = self._followed
        self.query_one("#facts", Static).update(overview.facts(run.line, run.metrics, run.index.count, run.waiting))
        self.query_one("#curves", Static).update(overview.curves(run.metrics, width - 3))
        found = list(run.alarms)
        if found != self._alarms:
            options = self.query_one("#alarms", OptionList)
            before = self._alarms[options.highlighted] if options.highlighted is not None else None
            self._alarms = found
            options.clear_options()
            options.add_options([Option(overview.alarm_line(alarm)) for alarm in found])
            options.highlighted = (found.index(before) if before in found else 0) if found else None
        self.query_one("#alarms").display = bool(found)

    def _draw(self) -> None:
        """Draws the lines at the top, above the list and at the bottom."""
        run, listing = self._followed, self._listing
        right = f"as of {self._since}" if self._since else "reading"
        name = one_line(run.run.path.absolute().name, 60)
        self.query_one("#top", Static).update(overview.status_line(name, run.line, right, self.size.width))
        count = f"  {len(listing.places)} of {run.index.count} rollouts"
        if not run.index.count and not run.waiting:
            count = "  No rollouts yet. They appear with the first step."
        if listing.share < 1:
            count += f", {listing.share:.0%} searched"
        if run.waiting:
            count += f", {counted(run.waiting, 'step')} to read"
        if listing.unread:
            count += f", {counted(listing.unread, 'step')} could not be searched"
        if listing.words:
            count += f"  /{one_line(listing.words, 30)}"
        if listing.choices:
            count += f"  {one_line(written(listing.choices), 100)}"
        self.query_one("#count", Static).update(Content(count))
        problems = one_line(run.problems[-1], 200) if run.problems else ""
        told = self._said or self._trouble or problems
        self.query_one("#bottom", Static).update(Content(f" {told}" if told else HINTS[self._view]))

    # Which rollouts

    def _choose(self, choices: Choices, words: str | None = None) -> None:
        words = self._listing.words if words is None else words
        self._listing = Listing(self._followed, choices, words)
        self._show_listing(again=True)
        self._search(self._listing)
        self._draw()

    def _show_listing(self, *, again: bool = False) -> None:
        rows = self.query_one(RolloutList)
        rows.show(self._listing.places, rows.place, None if again else rows.top)

    def _search(self, listing: Listing) -> None:
        if listing.words and self._searching is not listing:
            self._searching = listing
            self._search_on(listing)

    @work
    async def _search_on(self, listing: Listing) -> None:
        while listing is self._listing and listing.share < 1:
            await asyncio.to_thread(listing.search, SLICE)
            if listing is self._listing:
                self._show_listing()
                self._draw()
        if self._searching is listing:
            self._searching = None

    @on(RolloutList.Chosen)
    def _chosen(self) -> None:
        if self._mode == "group":
            self._mode = ""
        self._show_detail()

    @work(exclusive=True, group="detail")
    async def _show_detail(self) -> None:
        detail = self.query_one("#detail", VerticalScroll)
        place = self.query_one(RolloutList).place
        shown = [] if place is None else await self._blocks(place)
        async with detail.batch():
            await detail.remove_children()
            await detail.mount_all([Static(content, classes=kind) for kind, content in shown])
        detail.scroll_home(animate=False)

    async def _blocks(self, place: int) -> list[blocks.Block]:
        """Reads and lays out what the mode asks for."""
        run, columns = self._followed, self._followed.index.columns
        step, number = columns["step"][place], columns["number"][place]
        try:
            rollout = await asyncio.to_thread(run.rollout, step, number)
            if self._mode == "group":
                members = await self._members(place)
                return list(blocks.side_by_side(step, members, number))
            other = tokens = None
            if self._mode == "difference":
                others = [one for one in await self._members(place) if one.number != number]
                other = max(others, key=lambda one: -1e300 if one.reward is None else one.reward, default=None)
            elif self._mode == "tokens":
                tokens = await asyncio.to_thread(run.tokens, step, number)
                if tokens is None:
                    self._say("The run recorded no log-probabilities of it, or has left no tokenizer yet.")
        except UsageError as error:
            return [(blocks.LINE, Content(one_line(str(error), 500)))]
        weights = weights_of(run.versions)
        return list(blocks.one(step, rollout, weights, other=other, tokens=tokens, through=self._through(place)))

    async def _members(self, place: int) -> list[Rollout]:
        run, columns = self._followed, self._followed.index.columns
        step = columns["step"][place]
        return [await asyncio.to_thread(run.rollout, step, columns["number"][at]) for at in run.group(place)]

    def _through(self, place: int) -> str:
        """What became of the same prompt at other steps."""
        columns, count = self._followed.index.columns, self._followed.index.count
        wanted = columns["prompt"][place]
        steps: dict[int, list[float]] = {}
        for at in range(count):
            if columns["prompt"][at] == wanted and columns["reward"][at] is not None:
                steps.setdefault(columns["step"][at], []).append(columns["reward"][at])
        if len(steps) < 2:
            return ""
        means = [sum(rewards) / len(rewards) for rewards in steps.values()]
        return (
            f"The same prompt at {len(steps)} steps: mean reward {blocks.number(means[0])} "
            f"{blocks.spark(means, 16)} {blocks.number(means[-1])}"
        )

    # Keys

    def on_key(self, event: Key) -> None:
        """Takes what was said last from the bottom line."""
        if self._said and not self._asking:
            self._said = ""
            self._draw()

    def action_view(self, view: str) -> None:
        """Shows another view."""
        self._view = view
        for name in ("overview", "rollouts", "settings"):
            self.query_one(f"#{name}").set_class(name == view, "shown")
        self._draw()

    def action_next(self, by: int) -> None:
        """Goes to the next rollout or alarm, or to the one before."""
        if self._view == "rollouts":
            self.query_one(RolloutList).move(by)
        elif self._view == "overview" and self._alarms:
            options = self.query_one("#alarms", OptionList)
            options.highlighted = max(0, min(len(self._alarms) - 1, (options.highlighted or 0) + by))
        else:
            self.action_go(by, 0)

    def action_go(self, lines: int, pages: int) -> None:
        """Moves in the list, or scrolls what is open."""
        if self._view == "rollouts" and not self._opened:
            rows = self.query_one(RolloutList)
            rows.move(lines + pages * max(1, rows.size.height - 1))
            return
        scrolled = self._scrolled()
        scrolled.scroll_relative(y=lines + pages * max(1, scrolled.size.height - 2), animate=False)

    def action_end(self, last: bool) -> None:
        """Goes to the first or the last line."""
        if self._view == "rollouts" and not self._opened:
            rows = self.query_one(RolloutList)
            rows.move(len(rows.places) if last else -len(rows.places))
        elif last:
            self._scrolled().scroll_end(animate=False)
        else:
            self._scrolled().scroll_home(animate=False)

    def action_step(self, by: int) -> None:
        """Lists the step before or after the one that is listed."""
        steps = self._followed.steps
        if self._view != "rollouts" or not steps:
            return
        chosen = self._listing.choices.get("step")
        if chosen is None:
            at = 0 if by > 0 else len(steps) - 1
        else:
            first = next((at for at, step in enumerate(steps) if step >= span(chosen)[0]), len(steps))
            at = first + by
        if 0 <= at < len(steps):
            self._choose({**self._listing.choices, "step": str(steps[at])})

    def action_open(self) -> None:
        """Opens the rollout, or the rollouts that an alarm is about."""
        if self._view == "rollouts":
            self._set_opened(self.query_one(RolloutList).place is not None)
        elif self._view == "overview" and self._alarms:
            alarm = self._alarms[self.query_one("#alarms", OptionList).highlighted or 0]
            failed = alarm.kind == "failure"
            self._choose({"failed": alarm.reward} if failed else {"step": str(alarm.step)}, "")
            self.action_view("rollouts")

    def action_leave(self) -> None:
        """Goes back to the list, or away from a question."""
        if self._asking:
            self._end_asking()
        elif self._mode:
            self.action_mode("")
        else:
            self._set_opened(False)

    def action_mode(self, mode: str) -> None:
        """Shows the rollout in another way, or in the usual one again."""
        if self._view == "rollouts" and self.query_one(RolloutList).place is not None:
            self._mode = "" if mode == self._mode else mode
            if mode:
                self._set_opened(True)
            self._show_detail()

    def action_copy(self) -> None:
        """Copies the command that shows the group."""
        place = self.query_one(RolloutList).place
        if self._view == "rollouts" and place is not None:
            columns = self._followed.index.columns
            where = f"--step {columns['step'][place]} --group {columns['group'][place]}"
            command = f"grpo show {shlex.quote(str(self._followed.run.path))} {where}"
            self.copy_to_clipboard(command)
            self._say(f"To the clipboard, where the terminal lets us: {command}")

    def action_keys(self) -> None:
        """Says what each key does."""
        self.push_screen(Keys())

    def action_ask(self, what: str) -> None:
        """Asks for words, filters or a step."""
        answer = self.query_one("#answer", Input)
        listing = self._listing
        self._asking, self._said = what, FILTERS if what == "filter" else ""
        answer.value = {"search": listing.words, "filter": written(listing.choices)}.get(what, "")
        self.query_one("#question", Static).update(Content(f" {PROMPTS[what]}"))
        self.query_one("#asked").add_class("shown")
        answer.can_focus = True
        answer.focus()
        answer.action_end()
        self._draw()

    @on(Input.Submitted)
    def _answered(self, event: Input.Submitted) -> None:
        text, choices = event.value.strip(), dict(self._listing.choices)
        words = text if self._asking == "search" else None
        try:
            if self._asking == "filter":
                choices = parsed(text, self._followed.scan)
            elif self._asking == "step":
                choices.pop("step", None)
                choices |= parsed(f"step={text}", self._followed.scan) if text else {}
        except UsageError as error:
            self._say(str(error))
            return
        self._end_asking()
        self.action_view("rollouts")
        self._set_opened(False)
        self._choose(choices, words)

    def _end_asking(self) -> None:
        answer = self.query_one("#answer", Input)
        self._asking = self._said = ""
        self.set_focus(None)
        answer.can_focus = False
        self.query_one("#asked").remove_class("shown")
        self._draw()

    def _set_opened(self, opened: bool) -> None:
        self._opened = opened
        self.query_one("#rollouts").set_class(opened, "opened")

    def _scrolled(self) -> VerticalScroll:
        name = "detail" if self._view == "rollouts" else self._view
        return self.query_one(f"#{name}", VerticalScroll)

    def _say(self, text: str) -> None:
        self._said = one_line(text, 300)
        self._draw()
