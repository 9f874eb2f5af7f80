"""Binds a spec to the user's options, weight and alias: what a run uses."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from grpo.plugins.agents import Access, AgentTask, Command, search_path
from grpo.plugins.error_lines import one_line
from grpo.plugins.errors import DatasetError, GrpoError, NotInstalled, PluginError, with_article
from grpo.plugins.mcp.attach import ServedFactory
from grpo.plugins.mcp.servers import McpServer
from grpo.plugins.sampling import RowsSeen
from grpo.plugins.specs import (
    AdvantageSpec,
    AgentSpec,
    Column,
    EnvSpec,
    LossSpec,
    RewardSpec,
    SamplerSpec,
    SandboxSpec,
    SessionSpec,
    VerifierSpec,
)
from grpo.plugins.training import GroupScores, LossTokens, TokenCosts
from grpo.plugins.types import Completion, Reads, Row

_ROWS_HINT = "Return a list of dicts, one for each row."


class MissingColumn(LookupError):
    """A row lacks a column that the reward or verifier needs."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """A spec, the distribution that it is from ("" for none), its options, and its alias, where its kind has one."""

    spec: Any
    distribution: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    alias: str = ""

    @property
    def name(self) -> str:
        """The alias, or else the spec's name: the key in metrics and records."""
        return self.alias or str(self.spec.name)

    def prepare(self) -> None:
        """Lets the plugin check its options before anything loads. Raises UsageError, NotInstalled, PluginError."""
        if getattr(self.spec, "prepare", None) is not None:
            self._let_prepare()
        for program, install in getattr(self.spec, "programs", {}).items():
            if shutil.which(program, path=search_path()) is None:
                raise NotInstalled(
                    f"{self.spec.kind} '{self.name}' needs the program '{program}', which is not on the PATH. {install}"
                )
        for module, install in getattr(self.spec, "modules", {}).items():
            if importlib.util.find_spec(module.partition(".")[0]) is None:  # what stands below would load it
                raise NotInstalled(
                    f"{self.spec.kind} '{self.name}' needs the module '{module}', which this Python lacks. {install}"
                )

    def _let_prepare(self) -> None:
        defaults = {option.name: option.default for option in self.spec.options if not option.required}
        try:
            self.spec.prepare(**{**defaults, **self.options})
        except GrpoError:
            raise
        except Exception as error:
            raise PluginError(
                f"{self.spec.kind} '{self.spec.name}' of {self.distribution}: its prepare function raised "
                f"{type(error).__name__}: {error}. Its author must raise a UsageError that says what to do."
            ) from error

    def _called(self, *given: object) -> Any:
        try:
            return self.spec.function(*given, **self.options)
        except Exception as error:
            raise self._error(f"raised {type(error).__name__}: {error}") from error

    def _error(self, fault: str) -> PluginError:
        where = f"{self.spec.kind} '{self.spec.name}' of {self.distribution}"
        return PluginError(f"{where} {fault}. Its author must fix it.")


@dataclass(frozen=True, slots=True)
class _BoundFunction(_Bound):
    spec: RewardSpec | VerifierSpec
    timeout: float = 10.0
    reads: Reads = "turn"
    env: str = ""  # in a run of several environments, the one whose completions it is for

    @property
    def grouped(self) -> bool:
        """Whether one call scores the completions of a prompt, in a rubric also through a component."""
        return isinstance(self.spec, RewardSpec) and self.spec.scope == "group"

    @property
    def together(self) -> bool:
        """Whether one call takes several completions: a whole batch, or a group."""
        return self.spec.batch or self.grouped

    def shown(self, completions: Sequence[Completion]) -> Sequence[Completion]:
        """Returns the completions for the function; `reads` may give it the text of every turn."""
        if self.reads == "turn" or self.spec.whole:
            return completions
        texts = ([m["content"] for m in completion.messages if m["role"] == "assistant"] for completion in completions)
        return [
            replace(completion, text="\n".join(turns or [completion.text]))
            for completion, turns in zip(completions, texts, strict=True)
        ]

    def call(self, completion: Completion) -> Any:
        """Calls the function for one completion; a coroutine if async. Raises MissingColumn, and the plugin's."""
        first = completion if self.spec.whole else completion.text
        columns = [_value(column, completion.row, self.spec.name) for column in self.spec.columns]
        return self.spec.function(first, *columns, **self.options, **self._rest([completion.row]))

    def calls(self, completions: Sequence[Completion]) -> Iterator[Any]:
        """Yields a call for each completion when taken; goes on after an error, which is one of `call`.

        The columns are read beforehand and the calls made by `map`: around a cheap reward anything else takes longer
        than the reward itself.
        """
        if self.spec.rest:
            return map(self.call, completions)
        rows = [completion.row for completion in completions]
        try:
            columns = [_column(column, rows, self.spec.name) for column in self.spec.columns]
        except Exception:  # of some row, whose own call raises it
            return map(self.call, completions)
        first: Sequence[Any] = completions if self.spec.whole else [completion.text for completion in completions]
        function = partial(self.spec.function, **self.options) if self.options else self.spec.function
        return map(function, first, *columns)

    def call_together(self, completions: Sequence[Completion]) -> Any:
        """Calls a function once for a batch (columns as lists) or a group (its row). Raises as `call`."""
        first: list[Any] = list(completions) if self.spec.whole else [c.text for c in completions]
        rows = [completion.row for completion in completions]
        if self.grouped:
            rest = {name: value for name, value in self._rest(rows).items() if _agree(name, rows)}
            columns = [_value(column, rows[0], self.spec.name) for column in self.spec.columns]
            return self.spec.function(first, *columns, **self.options, **rest)
        columns = [_column(column, rows, self.spec.name) for column in self.spec.columns]
        rest = {name: [row.get(name) for row in rows] for name in self._rest(rows)}
        return self.spec.function(first, *columns, **self.options, **rest)

    def _rest(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the columns that no parameter names, each from the first row that has it, for `**kwargs`."""
        if not self.spec.rest:
            return {}
        columns, options = ({name.name for name in named} for named in (self.spec.columns, self.spec.options))
        taken = {"completion", "completions"} | columns | options
        return {name: value for row in reversed(rows) for name, value in row.items() if name not in taken}


@dataclass(frozen=True, slots=True)
class BoundReward(_BoundFunction):
    """A reward with its options, its weight in the total, its alias, its time limit in seconds and what it reads."""

    spec: RewardSpec
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class BoundVerifier(_BoundFunction):
    """A verifier with its options, its alias, its time limit in seconds and what it reads."""

    spec: VerifierSpec


@dataclass(frozen=True, slots=True)
class _BoundFactory(_Bound):
    def make(self) -> Any:
        """Makes a fresh environment or pool; raises what the plugin raises."""
        return self.spec.factory(**self.options)


@dataclass(frozen=True, slots=True)
class BoundEnv(_BoundFactory):
    """An environment with its options."""

    spec: EnvSpec
    weight: float = 1.0

    @property
    def servers(self) -> tuple[McpServer, ...]:
        """The MCP servers whose tools it offers."""
        return self.spec.factory.servers if isinstance(self.spec.factory, ServedFactory) else ()

    def call_limit(self, seconds: float) -> float:
        """Returns the seconds that one call may take: `seconds`, or the plugin's own limit if longer."""
        own = 0.0 if self.spec.longest_call is None else self.spec.longest_call(**self.options)
        return max([seconds, own, *(server.longest_call for server in self.servers)])

    @property
    def ordered(self) -> bool:
        """Whether the rows are to be trained on in their order."""
        return self.spec.ordered is not None and self.spec.ordered(**self.options)

    def settled(self) -> BoundEnv:
        """Returns it with the rewards, the verifier and the note that fit its options. Raises UsageError."""
        return self if self.spec.settle is None else replace(self, spec=self.spec.settle(**self.options))

    def rows(self, split: str) -> Sequence[Mapping[str, Any]] | None:
        """Returns the rows of a split, or None when the environment makes its own episodes.

        Raises DatasetError, also where its function raises anything else, and GrpoError as the function raises it.
        """
        if self.spec.dataset is None:
            return None
        try:
            given = self.spec.dataset(split, **self.options)
        except GrpoError:
            raise
        except Exception as error:
            message = f"env '{self.name}': the function of its rows failed for the split '{split}': {one_line(error)}"
            raise DatasetError(message) from error
        return _given_rows(self.name, split, given)


class _IndexedRows(Sequence[Mapping[str, Any]]):
    """Rows of an object that is read by index and is no sequence: its slices may be columns, as those of `datasets`."""

    def __init__(self, source: Any, numbers: range) -> None:
        self._source = source
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return _IndexedRows(self._source, self._numbers[place])
        return self._source[self._numbers[place]]


def _given_rows(env: str, split: str, given: Any) -> Sequence[Mapping[str, Any]]:
    """Returns the rows that the dataset function of an environment returned for a split.

    Raises DatasetError: they are no sequence, or the first one is no mapping.
    """
    where = f"env '{env}': the function of its rows, for the split '{split}',"
    if isinstance(given, str | bytes | Mapping) or not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        kind = "None" if given is None else with_article(type(given).__name__)
        raise DatasetError(f"{where} returned {kind}. {_ROWS_HINT}")
    rows = given if isinstance(given, Sequence) else _IndexedRows(given, range(len(given)))
    if len(rows) == 0:
        return rows
    try:
        first = rows[0]
    except (KeyError, IndexError, TypeError):  # a table, or a table of splits
        raise DatasetError(f"{where} returned {with_article(type(given).__name__)}, not rows. {_ROWS_HINT}") from None
    if not isinstance(first, Mapping):
        raise DatasetError(f"{where} returned a row that is {with_article(type(first).__name__)}. {_ROWS_HINT}")
    return rows


@dataclass(frozen=True, slots=True)
class BoundSandbox(_BoundFactory):
    """A sandbox with its options."""

    spec: SandboxSpec


@dataclass(frozen=True, slots=True)
class BoundSession(_BoundFactory):
    """A session with its options."""

    spec: SessionSpec


@dataclass(frozen=True, slots=True)
class _BoundTraining(_Bound):
    spec: LossSpec | AdvantageSpec

    def _call(self, given: object) -> Any:
        try:
            return self.spec.function(given, **self.options)
        except Exception as error:
            error.add_note(f"(raised by the {self.spec.kind} '{self.name}' of {self.distribution or 'this process'})")
            raise


@dataclass(frozen=True, slots=True)
class BoundLoss(_BoundTraining):
    """A loss with its options."""

    spec: LossSpec

    def __call__(self, tokens: LossTokens) -> TokenCosts:
        """Returns the costs of tokens; raises what the plugin raises, with a note that names it."""
        costs = self._call(tokens)
        return costs if isinstance(costs, TokenCosts) else TokenCosts(costs)


@dataclass(frozen=True, slots=True)
class BoundAdvantage(_BoundTraining):
    """An advantage with its options."""

    spec: AdvantageSpec

    def __call__(self, scores: GroupScores) -> Any:
        """Returns what the function returned; raises what it raises, with a note that names it."""
        return self._call(scores)


@dataclass(frozen=True, slots=True)
class BoundSampler(_Bound):
    """A sampler with its options."""

    spec: SamplerSpec

    def choose(self, history: RowsSeen) -> list[int]:
        """Returns the chosen rows. Raises PluginError."""
        chosen = self._called(history)
        if fault := choice_fault(chosen, history, fewer=self.spec.fewer):
            raise self._error(fault)
        return [int(row) for row in chosen]


def choice_fault(chosen: Any, history: RowsSeen, *, fewer: bool) -> str:
    """Returns why rows cannot be a sampler's choice, or ""."""
    if not isinstance(chosen, Sequence) or not all(isinstance(row, int) for row in chosen):
        return f"returned {str(chosen)[:60]!r}, which is not a list of row numbers"
    if outside := [row for row in chosen if not 0 <= row < history.rows]:
        return f"chose row {outside[0]} of rows 0 to {history.rows - 1}"
    if len({*chosen}) < len(chosen) or not history.taken.isdisjoint(chosen):
        return "chose a row twice in one step"
    most = min(history.count, history.rows - len(history.taken))
    least, wanted = (min(1, most), f"1 to {most}") if fewer else (most, str(most))
    return "" if least <= len(chosen) <= most else f"chose {len(chosen)} rows where {wanted} are wanted"


@dataclass(frozen=True, slots=True)
class BoundAgent(_Bound):
    """An agent with its options."""

    spec: AgentSpec

    @property
    def files(self) -> list[str]:
        """The files that its options name, which every episode must see."""
        return [str(value) for value in self.options.values() if isinstance(value, Path)]

    def command(self, task: AgentTask, access: Access) -> Command:
        """Returns the command that starts the agent's program. Raises PluginError if the function fails."""
        command = self._called(task, access)
        if fault := command_fault(command):
            raise self._error(fault)
        return command  # type: ignore[no-any-return]


def command_fault(command: Any) -> str:
    """Returns why something cannot be the command of an agent, or ""."""
    if not isinstance(command, Command):
        return f"returned {type(command).__name__}, and is to return a Command"
    argv = command.argv
    if isinstance(argv, str) or not isinstance(argv, Sequence) or not argv:
        return f"returned a command whose argv is {str(argv)[:60]!r}, which is no list of a program and its arguments"
    for attribute in ("environment", "files"):
        table = getattr(command, attribute)
        if not isinstance(table, Mapping) or not all(isinstance(text, str) for pair in table.items() for text in pair):
            return f"returned a command whose {attribute} does not map names to texts"
    texts = [*argv, *command.environment, *command.environment.values(), *command.files, command.stdin]
    if not all(isinstance(text, str) for text in texts):
        return "returned a command with a part that is no text"
    if any("\0" in text for text in texts[:-1]) or any("=" in name for name in command.environment):
        return "returned a command with a zero byte, or with '=' in the name of a variable"
    return ""


Bound = BoundReward | BoundVerifier | BoundEnv | BoundSandbox | BoundLoss | BoundAdvantage | BoundSampler | BoundAgent


def _column(column: Column, rows: Sequence[Row], plugin: str) -> list[Any]:
    try:
        return [row[column.name] for row in rows]
    except KeyError:
        return [_value(column, row, plugin) for row in rows]


def _value(column: Column, row: Row, plugin: str) -> Any:
    """Returns a row's value of a column, under any of its names, or else the default, or raises MissingColumn."""
    name = column.found_in(row)
    if name is not None:
        return row[name]
    if not column.required:
        return column.default
    have, wanted = ", ".join(row) or "none", "' or '".join(column.names)
    raise MissingColumn(f"'{plugin}' needs the column '{wanted}'; the row has: {have}")


def _agree(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    first = rows[0]
    return all(row is first or (name in row and repr(row[name]) == repr(first.get(name))) for row in rows)
