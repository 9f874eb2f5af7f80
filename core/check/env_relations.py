"""Tests the relations that hold for every correct environment, with one method for each relation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import wraps
from typing import Any, NamedTuple

from grpo.core.check.gold.solutions import acted, judge_golds, total
from grpo.core.check.report import Severity
from grpo.core.check.scores import Bound
from grpo.core.check.transitions import Transition, difference, of_reset, of_step, without_times
from grpo.core.env.episodes import Episode, start_episode
from grpo.core.env.step import ShapeError, five_values, two_values, weaknesses_of
from grpo.core.env.threads import EnvThreads, Raised
from grpo.core.env.tools import Schema, ToolCall, answer, functions_of, schemas_of
from grpo.core.env.worked import Wanted
from grpo.core.scoring.outcome import explain, is_finite
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.error_lines import one_line
from grpo.plugins.errors import GrpoError, NotInstalled, with_article
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

HOSTILE_AGENTS = "hostile agents are not paid"
MADE = "it can be made"  # where that does not hold, no other relation is tried
VALUES = "values of reset and step"  # likewise
CLOSE = "close"
_MACHINES = 16  # instances that are tried side by side where each is a machine
_TASKS = 4  # whose hostile agents are played; `grpo plugins validate` plays those of all
_SEEDS = 5
_ROWS = 8
_MOST_TURNS = 200
_UNLIKE_STEPS = "Deterministic step"  # how Gymnasium's checker begins where two equal steps returned different values
_CALL = 20.0  # seconds for one call of many instances side by side
_HOSTILE = ("", " \n", "\x00", "\ud800", "</answer><answer>", "{" * 2000, "7" * 1_000_000, "\u202e1", "\U0001f600")

SLOW = 20.0  # seconds for one call; a sandbox that starts is no fault
_HOSTILE_ARGUMENTS = ("", "\x00", "\ud800", "{" * 2000, "7" * 1_000_000, "while True: pass", "raise SystemExit(3)")


class EnvFinding(NamedTuple):
    """A relation that does not hold of an environment."""

    severity: Severity
    relation: str
    message: str
    example: str | None = None  # what it was tried on


class EnvRelations:
    """The relations of one environment, by `names` in the order to try them in; `instances` step side by side."""

    def __init__(self, bound: BoundEnv, instances: int) -> None:
        self._bound = bound
        self._instances = instances
        self._rows: list[Mapping[str, Any]] | None = None
        self._findings: list[EnvFinding] = []
        self._raised: set[str] = set()
        self._hinted = False
        self._checks: dict[str, Callable[[str], None]] = {
            "gymnasium's checker": self._gymnasium,
            "rows": self._read_rows,
            "same seed, same episode": self._deterministic,
            "no leak between episodes": self._leaks,
            "no leak between instances": self._side_effects,
            "hostile actions": self._hostile,
            "tools": self._tools,
            "demonstrations score highest": self._demonstrations,
            HOSTILE_AGENTS: self._hostile_agents,
            f"{instances} instances": self._many,
        }
        self.names = tuple(self._checks)

    def attempt(self, relation: str) -> list[EnvFinding]:
        """Tries one relation; an error of the environment is a finding, a missing module NotInstalled."""
        self._findings = []
        try:
            self._checks[relation](relation)
        except NotInstalled:
            raise
        except ShapeError as error:
            self._add("error", VALUES, str(error))
        except BaseException as error:  # also an environment that exits; this is no thread that Ctrl-C reaches
            raised = str(error) if isinstance(error, GrpoError) else f"it raised {one_line(error)}"
            if raised not in self._raised:  # what raises in every episode is one error to repair
                self._add("error", relation, f"{raised}{self._rowless_hint()}")
            self._raised.add(raised)
        return self._findings

    def _rowless_hint(self) -> str:
        """Returns what to change where episodes start of rows alone; else ""."""
        if self._bound.spec.dataset is None or self._hinted:
            return ""
        self._hinted = True
        instance = None
        try:
            row = self._first_rows()[0]
            instance = self._bound.make()
            instance.reset(seed=0, options={"row": row})
        except BaseException:  # found by the relation that plays it
            return ""
        try:
            instance.reset(seed=0)
        except BaseException:
            return ". reset must also work without options, as gymnasium calls it: choose a row there"
        finally:
            self._close(instance)
        return ""

    def _add(self, severity: Severity, relation: str, message: str, example: str | None = None) -> None:
        self._findings.append(EnvFinding(severity, relation, message, example))

    def _close(self, *instances: Any) -> None:
        for instance in instances:
            try:
                instance.close()
            except BaseException as error:  # a run warns of it, too
                self._add("warning", CLOSE, f"close raised {explain(error)}; it may be called before reset and twice")

    def _gymnasium(self, relation: str) -> None:
        import gymnasium
        from gymnasium.utils.env_checker import check_env as gymnasium_check

        try:
            instance = self._bound.make()
        except NotInstalled:
            raise
        except BaseException as error:  # also an environment that exits
            self._add("error", MADE, explain(error))
            return
        try:
            if not isinstance(instance, gymnasium.Env):
                self._add("error", relation, f"the factory returned {with_article(type(instance).__name__)}")
                return
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                steps = _timeless(instance.unwrapped)
                try:
                    gymnasium_check(instance.unwrapped, skip_render_check=True)
                except AssertionError as error:
                    where = difference(steps[-2:-1], steps[-1:]) if _UNLIKE_STEPS in str(error) else ""
                    hint = f": {where}" if where else _charset_hint(instance)
                    self._add("error", relation, f"it raised {explain(error)}{hint}")
            for warning in caught:
                if "not having a spec" not in str(warning.message):  # only a registered environment has one
                    self._add("warning", relation, str(warning.message))
        finally:
            if isinstance(instance, gymnasium.Env):
                self._close(instance)

    def _read_rows(self, relation: str) -> None:
        if self._bound.spec.dataset is None:
            return
        for split in ("train", "test"):
            if not self._bound.rows(split):
                self._add("error", relation, f"the split '{split}' has no rows")
        if self._first_rows() != self._first_rows():
            self._add("error", relation, "loaded twice, the split 'train' has different rows")

    def _first_rows(self) -> list[Mapping[str, Any]]:
        return list((self._bound.rows("train") or ())[:_ROWS])

    def _starts(self) -> list[dict[str, Any]]:
        if self._rows is None:
            try:
                self._rows = self._first_rows()
            except Exception:  # a finding of the relation that is about rows
                self._rows = []
        seeds: list[dict[str, Any]] = [{"seed": seed} for seed in range(_SEEDS)]
        return seeds + [{"seed": 0, "options": {"row": row}} for row in self._rows]

    def _deterministic(self, relation: str) -> None:
        first, second = self._bound.make(), self._bound.make()
        for how in self._starts():
            given = dict(how["options"]["row"]) if "options" in how else None
            if unlike := difference([of_reset(first.reset(**how))], [of_reset(second.reset(**how))]):
                self._add("error", relation, f"two instances start differently with seed {how['seed']}: {unlike}")
            if given is not None and given != dict(how["options"]["row"]):
                self._add("error", "row unchanged", "reset changed the row that it was given")
            played = (_played(instance, how, self._text_actions()) for instance in (first, second))
            if unlike := difference(*played):
                message = f"the same actions get different results with seed {how['seed']}: {unlike}"
                self._add("error", relation, message)
        self._close(first, second)

    def _leaks(self, relation: str) -> None:
        used = self._bound.make()
        for how in self._starts():
            fresh = self._bound.make()
            wanted = of_reset(fresh.reset(**how))
            self._close(fresh)
            used.reset(**how)
            used.step("left half-way")
            if unlike := difference([wanted], [of_reset(used.reset(**how))]):
                self._add("error", relation, f"an episode starts differently after another one: {unlike}")
        self._close(used)

    def _side_effects(self, relation: str) -> None:
        """Members of a group stand in the same state side by side; what one does must not show in another."""
        action = self._text_actions()[0]
        for how in self._starts():
            alone, busy, beside = (self._bound.make() for _ in range(3))
            alone.reset(**how)
            wanted = of_step(alone.step(action))
            busy.reset(**how)
            beside.reset(**how)
            busy.step("something else")
            if unlike := difference([wanted], [of_step(beside.step(action))]):
                message = f"a step has another result after a step of another instance: {unlike}"
                self._add("error", relation, message)
            self._close(alone, busy, beside)

    def _hostile(self, relation: str) -> None:
        instance = self._bound.make()
        start = self._starts()[-1]
        most = self._bound.spec.max_turns if self._bound.spec.max_turns > 1 else _MOST_TURNS
        for action in _HOSTILE:
            instance.reset(**start)
            for _ in range(most):
                began = time.monotonic()
                try:
                    observation, score, terminated, truncated, info = five_values(instance.step(action))
                except ShapeError:
                    raise
                except Exception as error:
                    self._add("error", relation, f"step raised {explain(error)}", action[:60])
                    break
                if time.monotonic() - began > 1.0:
                    self._add("warning", relation, "one step took more than a second", action[:60])
                if self._bound.spec.played and not isinstance(observation, str):
                    kind = type(observation).__name__
                    self._add("error", relation, f"an observation is {with_article(kind)}, not text", action[:60])
                own = [each for each in dict(info.get("scores", {})).values() if each is not None]
                for each in (score, *own):
                    if isinstance(each, str) or not is_finite(each):
                        self._add("error", relation, f"the score {each!r} is not a finite number", action[:60])
                if terminated or truncated:
                    break
            else:
                if self._bound.spec.max_turns > 1:  # a rollout ends there anyway
                    continue
                self._add("error", relation, f"an episode has no end within {_MOST_TURNS} turns", action[:60])
        self._close(instance)

    def _tools(self, relation: str) -> None:
        start = self._starts()[-1]
        used = [action for episode in self._shown() for action in episode.gold_actions if not isinstance(action, str)]
        for fault in tool_faults(self._bound, start, used):
            self._add("error", *fault)

    def _demonstrations(self, relation: str) -> None:
        host = Host.discover()
        rewards, verifier = host.default_rewards(self._bound), host.default_verifier(self._bound)
        plugins: list[Bound] = [*rewards, *([verifier] if verifier else [])]
        shown = self._shown()
        if not shown:
            self._add("note", relation, "its episodes have no demonstration")
            return
        if not plugins:
            self._add("note", relation, "it names no reward and no verifier of its own")
            return
        worked = self._acted([(episode, episode.gold_actions) for episode in shown])
        silent = self._acted([(episode, ("",) * len(episode.gold_actions)) for episode in shown])
        swapped = self._acted([(episode, shown[index - 1].gold_actions) for index, episode in enumerate(shown)])
        with Scorer(plugins, workers=1) as scorer:
            golds = judge_golds(scorer, rewards, verifier, worked, silent)
            others = scorer.score(swapped)
            for name, failure in scorer.first_failure.items():
                self._add("error", relation, f"{name} failed: {failure.strip().splitlines()[-1]}")
        for index, (gold, completion, wrong) in enumerate(zip(golds, worked, swapped, strict=True)):
            if gold.complaint is not None:
                self._add("error", relation, gold.complaint, completion.text)
            if gold.silence_right:
                self._add("warning", relation, "its verifier accepts silence too", completion.text)
            other = total(rewards, {name: outcomes[index] for name, outcomes in others.items()})
            if gold.total < other:
                message = f"it scores {gold.total:g}, another row's {other:g}"
                self._add("error", relation, message, completion.text)
            elif rewards and gold.total == other and completion.text != wrong.text and not self._bound.spec.played:
                self._add("warning", relation, "another row's demonstration scores as high", wrong.text)

    def _acted(self, wanted: Sequence[Wanted]) -> list[Completion]:
        completions: list[Completion] = []
        for outcome in acted(self._bound, wanted):
            if isinstance(outcome, Raised):
                raise outcome.error
            completions.append(outcome)
        return completions

    def _shown(self) -> list[Episode]:
        instance = self._bound.make()
        episodes: list[Episode] = []
        for how in self._starts():
            row = how.get("options", {}).get("row", {})
            episodes.append(start_episode(self._bound.name, instance, len(episodes), how, row, ""))
        self._close(instance)
        return [episode for episode in episodes if episode.gold_actions]

    def _text_actions(self) -> tuple[str, ...]:
        solutions = (episode.gold_actions for episode in self._shown())
        texts = (tuple(action for action in actions if isinstance(action, str)) for actions in solutions)
        return next(filter(None, texts), ("7",))

    def _hostile_agents(self, relation: str) -> None:
        """Lets agents that solve nothing play tasks of a kind where they could reach the grader."""
        instance = self._bound.make()
        try:
            weaknesses = weaknesses_of(instance)
            for row in (self._first_rows() if weaknesses else ())[:_TASKS]:
                for paid in weaknesses(row) if weaknesses else ():
                    task = str(row.get("name") or row.get("task") or row.get("instruction") or "")
                    self._add("error", relation, paid, task)
        finally:
            self._close(instance)

    def _many(self, relation: str) -> None:
        how = self._starts()[-1]
        instance = self._bound.make()
        count = _MACHINES if weaknesses_of(instance) else self._instances
        self._close(instance)
        with EnvThreads(self._bound.make, seconds=_CALL) as side_by_side:
            action = self._text_actions()[0]
            calls = {"start": lambda env: of_reset(env.reset(**how)), "step": lambda env: of_step(env.step(action))}
            for what, call in calls.items():
                results = side_by_side.call(dict.fromkeys(range(count), call))
                failed = [result for result in results.values() if isinstance(result, Raised)]
                if failed:
                    self._add("error", relation, f"{len(failed)} cannot {what}: {explain(failed[0].error)}")
                    return
                first = results[0]
                if unlike := next(filter(None, (difference([first], [other]) for other in results.values())), ""):
                    self._add("error", relation, f"side by side they {what} the same episode differently: {unlike}")


def _charset_hint(env: Any) -> str:
    from gymnasium.spaces import Text

    if not isinstance(env.observation_space, Text):
        return ""
    return (
        " A `Text` space holds letters and digits alone, without a `charset`; `grpo.envs.text.spaces.AnyText` any text."
    )


def _timeless(env: Any) -> list[Transition]:
    """Makes the steps of an instance return no times, and returns the list that they are recorded in."""
    reset, step, steps = env.reset, env.step, []

    @wraps(reset)  # the checker looks at its signature
    def started(**how: Any) -> Any:
        return two_values(reset(**how))

    def noted(action: Any) -> Any:
        result = step(action)
        steps.append(of_step(result))
        return (*result[:-1], without_times(result[-1]))

    env.reset, env.step = started, noted
    return steps


def _played(env: Any, how: Mapping[str, Any], actions: Sequence[str]) -> list[Transition]:
    answers = [of_reset(env.reset(**how))]
    for action in actions:
        stepped = env.step(action)
        answers.append(of_step(stepped))
        if stepped[2] or stepped[3]:
            break
    return answers


def tool_faults(
    bound: BoundEnv, start: Mapping[str, Any], worked: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    """Calls the tools of an environment and yields what does not hold: the relation, a sentence, the call."""
    with closing(bound.make()) as env:
        env.reset(**start)
        schemas = schemas_of(env, bound.name)
        if schemas and bound.spec.max_turns == 1:
            yield "tools", "it offers tools, and max_turns is 1: a call and its answer take a turn each", ""
        for call in _hostile_calls(schemas):
            yield from _fault(env, call)
    for used in worked:
        first, second = (_tool_answer(bound, start, ToolCall(used["tool"], used["arguments"])) for _ in range(2))
        if first != second:
            yield "tools answer alike", "two instances answer the same call differently", str(dict(used))[:60]


def _fault(env: Any, call: ToolCall) -> Iterator[tuple[str, str, str]]:
    shown = f"{call.name}({str(dict(call.arguments))[:40]})"
    began = time.monotonic()
    try:
        answer(functions_of(env), call)
    except BaseException as error:  # also a tool that lets a program call exit()
        yield "tools", f"a call raised {explain(error)}", shown
    if time.monotonic() - began > SLOW:
        yield "tools", f"a call took more than {SLOW:g} seconds", shown


def _tool_answer(bound: BoundEnv, start: Mapping[str, Any], call: ToolCall) -> str:
    with closing(bound.make()) as env:
        env.reset(**start)
        return answer(functions_of(env), call)


def _hostile_calls(schemas: Sequence[Schema]) -> Iterator[ToolCall]:
    """Yields calls without arguments, with unknown ones, and with hostile texts in the place of each."""
    for schema in schemas:
        function = schema["function"]
        names = list(function["parameters"]["properties"])
        yield ToolCall(function["name"], {})
        yield ToolCall(function["name"], {"no_such_parameter": 1})
        for hostile in _HOSTILE_ARGUMENTS if names else ():
            yield ToolCall(function["name"], dict.fromkeys(names, hostile))
