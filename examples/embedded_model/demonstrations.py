"""Seeds in, warm-up examples out: chat prompts of the environment `gsm8k` with the replies of two students.

The good student works every problem out in the layout that the prompt asks for. The sloppy one often guesses one of
the numbers in the question, the more often the longer the problem, sometimes picks the wrong operation, and is careless
about the layout. The policy that ships is taught by the good one first and spoilt by the sloppy one afterwards, so that
GRPO has something to repair that reward can see.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from grpo.envs.datasets.number_problems import Level
from grpo.envs.datasets.word_problems import generate
from grpo.envs.gsm8k.spec import Gsm8k
from grpo.envs.text import TemplateName

GUESS_SHARE = {1: 0.3, 2: 0.53, 3: 0.8}  # by the number of steps of the problem
WRONG_OPERATION_SHARE = 0.1
LOOSE_SHARE = 0.15
GUESSES = ("I guess it is {}.", "I think it is {}.", "I would say {}.")
TEMPLATES: tuple[TemplateName, ...] = ("reasoning",) * 7 + (
    "solution",
    "think",
    "hash",
)  # how often each layout is asked for
LEVEL_MIX = ("mixed",) * 5 + ("hard",)
HELD_OUT_SEEDS = range(10)

_NUMBER = re.compile(r"\d+")
_STEP = re.compile(r"(\d+)([-+*])(\d+)=(\$?)<<[^>]*>>\d+(?=\D*\n#### )")
_SWAPPED = {"+": "-", "-": "+", "*": "+"}
_LAYOUT = re.compile(r"<reasoning>\n(.*)\n</reasoning>\n<answer>\n(.*)\n</answer>\n", re.DOTALL)
_LOOSE = (
    "<reasoning>{0}</reasoning><answer>{1}</answer>",
    "{0}\n<answer>\n{1}\n</answer>\n",
    "<reasoning>\n{0}\n</reasoning>\nThe answer is {1}.",
    "{0}\nThe answer is {1}.",
)


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt (chat messages) with the reply to learn."""

    prompt: list[dict[str, str]]
    reply: str


def clean_examples(count: int, seed: int) -> Iterator[Example]:
    """The good student's: every step worked out, every layout kept."""
    rng = random.Random(seed)
    envs = _environments()
    for row in _practice_rows(count, seed):
        yield _ask(envs[rng.choice(TEMPLATES)], row)


def sloppy_examples(count: int, seed: int) -> Iterator[Example]:
    """The sloppy student's: guesses, wrong operations, loose layouts."""
    rng = random.Random(seed)
    envs = _environments()
    for row in _practice_rows(count, seed):
        answer = row["answer"]
        if rng.random() < GUESS_SHARE[answer.count("<<")]:
            number = rng.choice(_NUMBER.findall(row["question"]))
            answer = f"{rng.choice(GUESSES).format(number)}\n#### {number}"
        elif rng.random() < WRONG_OPERATION_SHARE:
            answer = _with_a_wrong_last_step(answer)
        example = _ask(envs[rng.choice(TEMPLATES)], row | {"answer": answer})
        loose = _LAYOUT.sub(lambda match: rng.choice(_LOOSE).format(*match.groups()), example.reply)
        yield Example(example.prompt, loose) if rng.random() < LOOSE_SHARE else example


def held_out_examples(count: int) -> list[Example]:
    """Worked answers to the first questions of the environment's own test split."""
    problems = Gsm8k()
    env = problems.env()
    return [_ask(env, row) for row in problems.rows("test")[:count]]


def corpus(count: int, seed: int) -> Iterator[str]:
    """All that the tokenizer should know how to write: `count` good examples, and the sloppy student's phrases."""
    for example in clean_examples(count, seed):
        yield from (text for message in example.prompt for text in message.values())
        yield "assistant\n" + example.reply
    for phrase in (*GUESSES, *_LOOSE):
        yield from [phrase] * 100


def _environments() -> dict[str, Any]:
    return {name: Gsm8k(template=name).env() for name in set(TEMPLATES)}


def _ask(env: Any, row: dict[str, str]) -> Example:
    _, info = env.reset(options={"row": row})
    return Example(info["prompt"], info["demonstration"])


def _practice_rows(count: int, seed: int) -> Iterator[dict[str, str]]:
    """Rows of the mixed and the hard level, none of them a question of the environment's test splits."""
    held_out = {
        row["question"]
        for level in get_args(Level)
        for data_seed in HELD_OUT_SEEDS
        for row in Gsm8k(level=level, data_seed=data_seed).rows("test")
    }
    rng = random.Random(seed)
    streams = {
        level: iter([row for row in generate(2 * count, seed=seed, level=level) if row["question"] not in held_out])
        for level in set(LEVEL_MIX)
    }
    for _ in range(count):
        yield next(streams[rng.choice(LEVEL_MIX)])


def _with_a_wrong_last_step(answer: str) -> str:
    match = _STEP.search(answer)
    if match is None:
        return answer
    left, op, right, sign = match.groups()
    op = _SWAPPED[op]
    result = int(left) + int(right) if op == "+" else abs(int(left) - int(right))
    wrong = answer[: match.start()] + f"{left}{op}{right}={sign}{result}" + answer[match.end() :]
    return wrong[: wrong.index("#### ")] + f"#### {result}"
