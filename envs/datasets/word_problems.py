"""Generates GSM8K-style word problems from a seed: rows with a `question` and a worked `answer`.

A problem is a chain: an opening sentence gives a first number, every further sentence applies one operation to the
number so far, and the last one asks for the result. The worked answer has one line per step, each with its
calculator annotation (`3*4=<<3*4=12>>12`), and ends with `#### 12`, exactly as in GSM8K. Only `Random.random` is
drawn from, the one method whose sequence Python promises to keep, so a seed means the same rows everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from grpo.plugins.errors import UsageError, did_you_mean

_T = TypeVar("_T")
_LEAST = 2  # no number is smaller, so every noun is a plural


@dataclass(frozen=True, slots=True)
class _Level:
    """How long the problems are and how large their numbers; ranges include both ends."""

    steps: tuple[int, int]
    start: tuple[int, int]
    added: tuple[int, int]
    factor: tuple[int, int]
    highest: int


_LEVELS = {
    "easy": _Level(steps=(1, 1), start=(3, 20), added=(2, 9), factor=(2, 5), highest=50),
    "medium": _Level(steps=(2, 2), start=(3, 20), added=(2, 9), factor=(2, 5), highest=50),
    "mixed": _Level(steps=(1, 3), start=(3, 20), added=(2, 9), factor=(2, 5), highest=50),
    "hard": _Level(steps=(3, 3), start=(12, 60), added=(6, 49), factor=(2, 9), highest=300),
}
LEVELS = tuple(_LEVELS)


@dataclass(frozen=True, slots=True)
class _Form:
    """One sentence of a problem: its operation on the number so far, its text, and the line that works it out.

    `{v}` is the number so far, `{n}` the operand, `{sum}` or `{dollars}` the annotated calculation.
    """

    op: str
    text: str
    working: str


@dataclass(frozen=True, slots=True)
class _World:
    """Sentences that go together. `openings` and `closings` may carry a step themselves; `question` asks plainly."""

    plain_openings: tuple[str, ...]
    openings: tuple[_Form, ...]
    middles: tuple[_Form, ...]
    closings: tuple[_Form, ...]
    question: tuple[str, ...]


_THINGS = _World(
    plain_openings=(
        "{name} has {v} {things}.",
        "There are {v} {things} in {name}'s bag.",
        "{name} starts the day with {v} {things}.",
        "{name} collects {v} {things}.",
    ),
    openings=(
        _Form("*", "{name} buys {v} boxes of {n} {things} each.", "{name} buys {sum} {things}."),
        _Form("*", "{name} has {v} bags with {n} {things} in each bag.", "{name} has {sum} {things}."),
        _Form("+", "{name} has {v} red {things} and {n} blue {things}.", "{name} has {sum} {things}."),
    ),
    middles=(
        _Form("+", "{They} finds {n} more {things}.", "{name} now has {sum} {things}."),
        _Form("+", "{friend} gives {them} {n} more.", "{name} now has {sum} {things}."),
        _Form("+", "Then {they} buys {n} {things} at the market.", "{name} now has {sum} {things}."),
        _Form("-", "{They} gives {n} of them to {friend}.", "{name} keeps {sum} {things}."),
        _Form("-", "{They} loses {n} {things}.", "{name} keeps {sum} {things}."),
        _Form("-", "Then {friend} borrows {n} of the {things}.", "{name} keeps {sum} {things}."),
        _Form("*", "A month later {they} has {n} times as many.", "{name} then has {sum} {things}."),
        _Form("/", "{They} puts them into {n} equal piles and keeps one pile.", "{name} keeps {sum} {things}."),
    ),
    closings=(
        _Form("+", "{friend} has {n} more than {name}. How many {things} does {friend} have?", "{friend} has {sum}."),
        _Form("-", "{friend} has {n} fewer than {name}. How many {things} does {friend} have?", "{friend} has {sum}."),
        _Form("*", "{friend} has {n} times as many. How many {things} does {friend} have?", "{friend} has {sum}."),
        _Form("*", "{They} sells them all for ${n} each. How many dollars does {they} get?", "{name} gets {dollars}."),
        _Form("/", "{They} shares them equally among {n} friends. How many does each friend get?", "Each gets {sum}."),
        _Form("/", "{They} packs them in boxes of {n}. How many boxes does {they} fill?", "{name} fills {sum} boxes."),
    ),
    question=("How many {things} does {name} have now?", "How many {things} does {they} have in the end?"),
)
_MONEY = _World(
    plain_openings=("{name} has ${v}.", "{name} has saved ${v}.", "{name} gets ${v} for a birthday."),
    openings=(
        _Form("*", "{name} works {v} hours for ${n} an hour.", "{name} earns {dollars}."),
        _Form("*", "{name} saves ${n} a week for {v} weeks.", "{name} saves {dollars}."),
        _Form("+", "{name} earns ${v} on Monday and ${n} on Tuesday.", "{name} earns {dollars}."),
    ),
    middles=(
        _Form("+", "{They} earns ${n} for washing a car.", "{name} now has {dollars}."),
        _Form("+", "{friend} gives {them} ${n}.", "{name} now has {dollars}."),
        _Form("-", "{They} spends ${n} on lunch.", "{name} has {dollars} left."),
        _Form("-", "Then {they} lends {friend} ${n}.", "{name} has {dollars} left."),
        _Form("*", "A year later {they} has {n} times as much.", "{name} then has {dollars}."),
    ),
    closings=(
        _Form("-", "{friend} has ${n} less. How many dollars does {friend} have?", "{friend} has {dollars}."),
        _Form("/", "How many tickets at ${n} each can {they} buy?", "{name} can buy {sum} tickets."),
        _Form("/", "{They} splits it equally with {n} people in all. How many dollars each?", "Each gets {dollars}."),
        _Form("*", "{friend} has {n} times as much. How many dollars does {friend} have?", "{friend} has {dollars}."),
    ),
    question=("How many dollars does {name} have now?", "How much money does {they} have in the end?"),
)
_JOURNEY = _World(
    plain_openings=("{name} {goes} {v} {units} on Monday.", "{name} plans to {go} {v} {units}."),
    openings=(
        _Form("*", "{name} {goes} {n} {units} a day for {v} days.", "{name} {goes} {sum} {units}."),
        _Form("*", "{name} wants to {go} {n} {units} on each of {v} days.", "That is {sum} {units}."),
        _Form("+", "{name} {goes} {v} {units} and {friend} {goes} {n} {units}.", "Together that is {sum} {units}."),
    ),
    middles=(
        _Form("+", "Then {they} adds {n} {units}.", "Now it is {sum} {units}."),
        _Form("+", "The next day brings {n} {units} more.", "Now it is {sum} {units}."),
        _Form("-", "A note says that {n} {units} do not count.", "That leaves {sum} {units}."),
        _Form("*", "The club goal is {n} times that.", "The goal is {sum} {units}."),
    ),
    closings=(
        _Form("-", "{n} {units} are done. How many {units} are left?", "There are {sum} {units} left."),
        _Form("/", "{They} spreads them over {n} equal days. How many {units} a day?", "A day has {sum} {units}."),
        _Form("*", "{friend} manages {n} times as many. How many {units} is that?", "{friend} manages {sum} {units}."),
    ),
    question=("How many {units} is that in all?", "What is the total number of {units}?"),
)
_WORLDS = (_THINGS, _THINGS, _MONEY, _JOURNEY)

_SHE = ("She", "she", "her")
_HE = ("He", "he", "him")
_PEOPLE = (
    *((name, _SHE) for name in ("Ada", "Mia", "Lena", "Nora", "Priya", "Rosa", "Sara", "Tina", "Uma", "Wanda", "Zoe")),
    *((name, _HE) for name in ("Ali", "Ben", "Carlos", "Dan", "Emil", "Finn", "Hugo", "Ivan", "Jack", "Kofi", "Leo")),
)
_OBJECTS = (
    *("apples", "pears", "plums", "lemons", "cookies", "muffins", "eggs", "nuts", "shells", "stones", "coins"),
    *("stamps", "books", "cards", "pens", "beads", "balls", "marbles", "stickers", "flowers", "ribbons", "buttons"),
    *("toys", "keys"),
)
_MOVES = (
    ("walk", "walks", "kilometers"),
    ("run", "runs", "miles"),
    ("ride", "rides", "kilometers"),
    ("read", "reads", "pages"),
    ("swim", "swims", "laps"),
    ("knit", "knits", "rows"),
)


def generate(count: int, *, seed: int, level: str = "mixed") -> list[dict[str, str]]:
    """Makes word problems in the schema of GSM8K.

    A longer list with the same seed begins with the shorter one.

    Args:
        seed: the rows are a function of the seed and the level.
        level: "easy" (one step), "medium" (two), "mixed" (one to three; small numbers all), "hard" (three steps,
            numbers up to 300).

    Returns:
        Rows `{"question": ..., "answer": ...}`; all numbers are whole and at least 2.

    Raises:
        UsageError: an unknown level, or a count below 0.
    """
    if level not in _LEVELS:
        raise UsageError(f"no level '{level}'.{did_you_mean(level, LEVELS)} The levels are: {', '.join(LEVELS)}.")
    if count < 0:
        raise UsageError(f"cannot make {count} word problems; ask for 0 or more.")
    rng = random.Random(seed)
    return [_problem(rng, _LEVELS[level]) for _ in range(count)]


def _problem(rng: random.Random, level: _Level) -> dict[str, str]:
    steps = _between(rng, level.steps)
    while True:
        row = _chain(rng, level, steps)
        if row is not None:
            return row


def _chain(rng: random.Random, level: _Level, steps: int) -> dict[str, str] | None:
    """Returns a problem of `steps` steps, or None when the numbers drawn leave no way on."""
    world = _pick(rng, _WORLDS)
    words = _cast(rng)
    value = _between(rng, level.start)
    opens = rng.random() < 0.35
    closes = steps > opens and rng.random() < 0.5
    forms = [_pick(rng, world.openings)] if opens else []
    forms += [_pick(rng, world.middles) for _ in range(steps - opens - closes)]
    forms += [_pick(rng, world.closings)] if closes else []
    texts = [] if opens else [_pick(rng, world.plain_openings).format(v=value, **words)]
    lines = []
    for form in forms:
        operand = _operand(rng, level, form, value)
        if operand is None:
            return None
        texts.append(form.text.format(v=value, n=operand, **words))
        task = f"{value}{form.op}{operand}"
        value = _calculate(form.op, value, operand)
        note = f"<<{task}={value}>>{value}"
        lines.append(form.working.format(sum=f"{task}={note}", dollars=f"{task}=${note}", **words))
    if not closes:
        texts.append(_pick(rng, world.question).format(**words))
    return {"question": " ".join(texts), "answer": "\n".join([*lines, f"#### {value}"])}


def _operand(rng: random.Random, level: _Level, form: _Form, value: int) -> int | None:
    """Returns a second number for `form` that keeps the result whole, at least 2 and within the level."""
    low, high = level.added if form.op in "+-" else level.factor
    fitting = [n for n in range(low, high + 1) if _fits(form.op, value, n, level.highest)]
    return _pick(rng, fitting) if fitting else None


def _fits(op: str, value: int, operand: int, highest: int) -> bool:
    if op == "/" and value % operand:
        return False
    return _LEAST <= _calculate(op, value, operand) <= highest


def _calculate(op: str, left: int, right: int) -> int:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left // right


def _cast(rng: random.Random) -> dict[str, str]:
    """Returns the words of one problem: two different people, an object, a movement."""
    name, (they_capital, they, them) = _pick(rng, _PEOPLE)
    friend = _pick(rng, [person for person, _ in _PEOPLE if person != name])
    go, goes, units = _pick(rng, _MOVES)
    words = {"name": name, "They": they_capital, "they": they, "them": them, "friend": friend}
    return words | {"things": _pick(rng, _OBJECTS), "go": go, "goes": goes, "units": units}


def _pick(rng: random.Random, choices: Sequence[_T]) -> _T:
    return choices[int(rng.random() * len(choices))]


def _between(rng: random.Random, ends: tuple[int, int]) -> int:
    return ends[0] + int(rng.random() * (ends[1] - ends[0] + 1))
