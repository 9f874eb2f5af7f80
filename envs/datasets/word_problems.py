"""Generates GSM8K-style word problems from a seed: rows with a `question` and a worked `answer`.

A problem is a chain: an opening sentence gives a number, each further one applies an operation, and the last asks for
the result. The worked answer has one line per step, with its calculator annotation (`3*4=<<3*4=12>>12`), and ends with
`#### 12`, exactly as in GSM8K.
"""

from __future__ import annotations

import operator
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grpo.envs.datasets.checks import refuse_size
from grpo.envs.datasets.draws import Draws
from grpo.envs.datasets.stored import Placed
from grpo.plugins.errors import DatasetError, OptionError, UsageError, did_you_mean

_CALCULATE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
}
_LEAST = 2  # no number is smaller, so every noun is a plural
_TEST_OFFSET = 1_000_003  # from the seed of the train split to one of the test split
_MOST_ROUNDS = 20  # in search of questions that the train split lacks


@dataclass(frozen=True, slots=True)
class _Level:
    """The length of the problems and the size of their numbers; ranges include both ends."""

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
    """One sentence of a problem; `{v}`: the number so far, `{n}`: the operand, `{sum}`/`{dollars}`: the calculation."""

    op: str
    text: str
    working: str


@dataclass(frozen=True, slots=True)
class _World:
    """Sentences that go together. `openings` and `closings` may carry a step themselves; `question` asks plainly."""

    plain_openings: Sequence[str]
    openings: Sequence[_Form]
    middles: Sequence[_Form]
    closings: Sequence[_Form]
    question: Sequence[str]


@cache
def _worlds() -> Sequence[_World]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for world in table.values():
        world |= {name: [_Form(*form) for form in world[name]] for name in ("openings", "middles", "closings")}
    things, money, journey = (_World(**world) for world in table.values())
    return things, things, money, journey


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

    A longer list with the same seed begins with the shorter one. `level`: "easy" (one step), "medium" (two), "mixed"
    (one to three; small numbers all), "hard" (three steps, numbers up to 300). All numbers are whole and at least 2.
    Raises UsageError: an unknown level, or a count below 0.
    """
    if level not in _LEVELS:
        raise UsageError(f"no level '{level}'.{did_you_mean(level, LEVELS)} The levels are: {', '.join(LEVELS)}.")
    if count < 0:
        raise UsageError(f"cannot make {count} word problems; ask for 0 or more.")
    draws = Draws(seed)
    return [_problem(draws, _LEVELS[level]) for _ in range(count)]


def _problem(draws: Draws, level: _Level) -> dict[str, str]:
    steps = draws.whole(*level.steps)
    while (row := _chain(draws, level, steps)) is None:
        pass
    return row


def _chain(draws: Draws, level: _Level, steps: int) -> dict[str, str] | None:
    """None when the numbers drawn leave no next step."""
    world = draws.pick(_worlds())
    words = _cast(draws)
    value = draws.whole(*level.start)
    opens = draws.chance(0.35)
    closes = steps > opens and draws.chance(0.5)
    forms = [draws.pick(world.openings)] if opens else []
    forms += [draws.pick(world.middles) for _ in range(steps - opens - closes)]
    forms += [draws.pick(world.closings)] if closes else []
    texts = [] if opens else [draws.pick(world.plain_openings).format(v=value, **words)]
    lines = []
    for form in forms:
        operand = _operand(draws, level, form, value)
        if operand is None:
            return None
        texts.append(form.text.format(v=value, n=operand, **words))
        task = f"{value}{form.op}{operand}"
        value = _CALCULATE[form.op](value, operand)
        note = f"<<{task}={value}>>{value}"
        lines.append(form.working.format(sum=f"{task}={note}", dollars=f"{task}=${note}", **words))
    if not closes:
        texts.append(draws.pick(world.question).format(**words))
    return {"question": " ".join(texts), "answer": "\n".join([*lines, f"#### {value}"])}


def _operand(draws: Draws, level: _Level, form: _Form, value: int) -> int | None:
    """A second number that keeps the result whole, at least 2 and within the level."""
    low, high = level.added if form.op in "+-" else level.factor
    fitting = [n for n in range(low, high + 1) if _fits(form.op, value, n, level.highest)]
    return draws.pick(fitting) if fitting else None


def _fits(op: str, value: int, operand: int, highest: int) -> bool:
    if op == "/" and value % operand:
        return False
    return _LEAST <= _CALCULATE[op](value, operand) <= highest


def _cast(draws: Draws) -> dict[str, str]:
    """Two different people, an object, a movement."""
    name, (they_capital, they, them) = draws.pick(_PEOPLE)
    friend = draws.pick([person for person, _ in _PEOPLE if person != name])
    go, goes, units = draws.pick(_MOVES)
    words = {"name": name, "They": they_capital, "they": they, "them": them, "friend": friend}
    return words | {"things": draws.pick(_OBJECTS), "go": go, "goes": goes, "units": units}


def read_embedded(level: str, size: int, seed: int, split: str) -> list[Placed]:
    """Returns the rows of a split with their places; `seed` is the train split's, the test split has its own.

    Raises OptionError for a bad size or seed; DatasetError for another split, or too few questions for the test split.
    """
    refuse_size(size, "the embedded rows")
    if seed < 0:
        raise OptionError(f"data_seed={seed} must be 0 or more.")
    where = f"embedded ({level}, data_seed {seed}, {split})"
    train = generate(size, seed=seed, level=level)
    if split == "train":
        return _placed(train, where)
    if split != "test":
        raise DatasetError(f"the embedded dataset has no split '{split}'; it has 'train' and 'test'.")
    questions = {row["question"] for row in train}
    test: list[dict[str, str]] = []
    for number in range(1, _MOST_ROUNDS + 1):
        for row in generate(size, seed=seed + number * _TEST_OFFSET, level=level):
            if row["question"] not in questions:
                questions.add(row["question"])
                test.append(row)
        if len(test) >= size:
            return _placed(test[:size], where)
    raise DatasetError(
        f"{where}: only {len(test)} of {size} questions are not in the train split. Lower 'size' or choose a harder "
        "'level'."
    )


def _placed(rows: list[dict[str, str]], where: str) -> list[Placed]:
    return [(f"{where}, row {number}", row) for number, row in enumerate(rows, start=1)]
