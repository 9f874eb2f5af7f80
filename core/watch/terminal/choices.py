"""Which rollouts are listed: choices as they are written in, places in the index of a run in order out.

The names are those of the address of the page of `grpo report`: `step=3-9 verdict=wrong sort=-reward`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from grpo.core.report.index import VERDICTS, Index
from grpo.core.report.scan import KINDS, Scan
from grpo.plugins.errors import UsageError, did_you_mean

Choices = Mapping[str, str]
SORTS = {
    "": "as recorded",
    "-reward": "best first",
    "reward": "worst first",
    "-advantage": "highest advantage",
    "advantage": "lowest advantage",
    "-tokens": "longest first",
    "tokens": "shortest first",
}
NAMES = ("step", "group", "env", "finish", "verdict", "failed", "reward", "min", "max", "abstained", "sort")
ANY, ENVIRONMENT = "any", "environment"
_SPAN = re.compile(r"(\d+)(?:-(\d+))?")


def parsed(text: str, scan: Scan) -> dict[str, str]:
    """Returns the choices that somebody wrote.

    Args:
        text: `name=value` several times; a value with spaces in quotes.
        scan: of the run, which has the names of rewards, environments and ends.

    Raises:
        UsageError: there is no such choice, or not this value.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{error} in '{text}'. Quotes come in pairs.") from None
    choices: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in NAMES:
            raise UsageError(f"no filter '{name}'.{did_you_mean(name, NAMES)} There are: {', '.join(NAMES)}.")
        if name == "failed" and not equals:
            value = ANY
        _refuse(name, value, scan)
        choices[name] = value
    if "abstained" in choices and "reward" not in choices:
        raise UsageError("abstained asks of one reward: add reward=NAME.")
    return choices


def written(choices: Choices) -> str:
    """Returns the choices as somebody could write them."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in choices.items())


def span(text: str) -> tuple[int, int]:
    """Returns the ends of "3" or "3-9".

    Raises:
        UsageError: it is neither.
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        raise UsageError(f"'{text}' is not a number or range of numbers. Write 3 or 3-9.")
    return int(found[1]), int(found[2] or found[1])


def matching(index: Index, scan: Scan, choices: Choices, places: range) -> list[int]:
    """Returns those of the places that the choices ask for; what is searched in texts is not a part of them.

    Args:
        index: of the run.
        scan: its names.
        choices: as `parsed` returns them.
        places: to look at.
    """
    tests = list(_tests(index.columns, scan, choices))
    return [at for at in places if all(test(at) for test in tests)]


def ordered(index: Index, scan: Scan, choices: Choices, places: list[int]) -> list[int]:
    """Returns the places in the order that the choices ask for; a rollout without a number comes last in either."""
    sort = choices.get("sort", "")
    if not sort:
        return places
    name = sort.removeprefix("-")
    own = _score(index.columns, scan, choices) if name == "reward" else index.columns.get(name, [])
    sign = -1 if sort.startswith("-") else 1
    keys = {at: sign * value for at in places if isinstance(value := own[at], (int, float)) and not math.isnan(value)}
    return sorted(places, key=lambda at: (keys.get(at, math.inf), at))


def _refuse(name: str, value: str, scan: Scan) -> None:
    """Refuses a value that no rollout can have.

    Raises:
        UsageError: it is one.
    """
    if name in ("step", "group"):
        span(value)
    elif name in ("min", "max"):
        try:
            sound = math.isfinite(float(value))
        except ValueError:
            sound = False
        if not sound:
            raise UsageError(f"{name}={value} is not a number.")
    elif name != "abstained":
        known: Sequence[str] = {
            "env": scan.envs,
            "finish": scan.finishes,
            "verdict": ("right", "wrong"),
            "failed": (ANY, ENVIRONMENT, *scan.rewards),
            "reward": scan.rewards,
            "sort": [sort for sort in SORTS if sort],
        }[name]
        if value not in known:
            raise UsageError(f"no {name} '{value}'.{did_you_mean(value, known)} There are: {', '.join(known)}.")


def _tests(columns: Mapping[str, list[object]], scan: Scan, choices: Choices) -> list[Callable[[int], bool]]:
    tests: list[Callable[[int], bool]] = []

    def within(name: str, low: float, high: float, own: Sequence[object]) -> None:
        def test(at: int) -> bool:
            value = own[at]
            return isinstance(value, (int, float)) and low <= value <= high

        if name in choices:
            tests.append(test)

    def same(own: Sequence[object], wanted: object) -> None:
        tests.append(lambda at: own[at] == wanted)

    for name in ("step", "group"):
        if name in choices:
            within(name, *span(choices[name]), columns.get(name, []))
    if "env" in choices:
        same(columns.get("env", []), _number(scan.envs, choices["env"]))
    if "finish" in choices:
        same(columns.get("finish", []), _number(scan.finishes, choices["finish"]))
    if "verdict" in choices:
        same(columns.get("verdict", []), VERDICTS.index(choices["verdict"] == "right"))
    failed = choices.get("failed")
    if failed in scan.rewards:
        same(columns.get(f"kind{scan.rewards.index(failed)}", []), KINDS.index("failure"))
    elif failed == ENVIRONMENT:
        same(columns.get("finish", []), _number(scan.finishes, "error"))
    elif failed == ANY:
        same(columns.get("failed", []), True)
    elif failed is not None:
        tests.append(lambda at: False)  # a reward that no rollout met any more
    if "abstained" in choices:
        same(columns.get(f"kind{_number(scan.rewards, choices['reward'])}", []), KINDS.index("abstain"))
    score = _score(columns, scan, choices)
    within("min", float(choices.get("min", 0)), math.inf, score)
    within("max", -math.inf, float(choices.get("max", 0)), score)
    return tests


def _score(columns: Mapping[str, list[object]], scan: Scan, choices: Choices) -> list[object]:
    """The scores of the reward that was chosen, else the totals."""
    reward = choices.get("reward")
    name = "reward" if reward is None else f"score{_number(scan.rewards, reward)}"
    return columns.get(name, [])


def _number(names: Sequence[str], name: str) -> int:
    """The number that stands for a name; -1, which no rollout has, where a run that went on knows it no more."""
    return names.index(name) if name in names else -1
