"""What is counted of a text: honest ones do not repeat themselves, and an answer is what is said last."""

from __future__ import annotations

import inspect
import json
import random
import re

import pytest

from grpo.core.monitor.hacking import features as surface
from grpo.core.monitor.hacking.features import READ, answer_of, counts_of, repeated, stuck

NOISE = random.Random(0)
HONEST = {
    "a short answer": "<answer>42</answer>",
    "a sum": "1+1" * 100,
    "digits": "".join(NOISE.choices("0123456789", k=READ)),
    "zeros and ones": "".join(NOISE.choices("01", k=READ)),
    "genes": "".join(NOISE.choices("ACGT", k=READ)),
    "code": inspect.getsource(surface),
    "code without spaces": "".join(inspect.getsource(surface).split()),
    "numbers in a row": ",".join(map(str, range(READ))),
    "a table": "\n".join("|".join(f"{row * column}" for column in range(20)) for row in range(100)),
    "a sparse grid": "\n".join("".join(NOISE.choices("0000001", k=30)) for _ in range(30)),
    "JSON": json.dumps([{"id": one, "name": f"n{one}"} for one in range(300)], separators=(",", ":")),
    "Chinese": "".join(chr(0x4E00 + int(NOISE.expovariate(1 / 200))) for _ in range(READ)),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_texts_do_not_repeat_themselves(name: str) -> None:
    assert not stuck(HONEST[name])
    assert repeated(HONEST[name]) < 0.5


@pytest.mark.parametrize("piece", ["!", "ab", "a-b-", "142857", "[INST][/INST]", "是的"])
def test_a_few_characters_over_and_over_are_stuck_first_and_last(piece: str) -> None:
    loop, words = piece * 600, " ".join(str(NOISE.random()) for _ in range(400))
    assert stuck(f"so it is: {loop}")
    assert stuck(f"{words} {loop}")
    assert stuck(f"{loop} {words}")


def test_words_repeat_themselves_after_the_characters_that_are_read_first() -> None:
    words = " ".join(str(NOISE.random()) for _ in range(400))
    assert repeated(f"{words}{' a b' * 2000}") > 0.9
    assert repeated(words) == 0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so\n42", "42"),
        ("so\n42 </answer>\n</done>", "42"),
        ("so\n42\u200b\u200b", "42"),
        ("so\n4\u034f2\n\u200d", "42"),
        ("so\n\uff14\uff12", "42"),
        ("so\n42\n.....", "42"),
        ("so\n42\n- - -\n```", "42"),
        ("so\n42" + " " * 2 * READ, "42"),
        ("so\n] )", "] )"),
        ("so\n... --- ...", "... --- ..."),
        ("so\n+", "+"),
        ("))))", "))))"),
        ("so\ncaf\u00e9", "caf\u00e9"),
        (" \n", ""),
    ],
)
def test_an_answer_is_the_last_line_that_says_something(text: str, answer: str) -> None:
    assert answer_of(text) == answer


def test_counts_of_ascii_are_those_of_the_same_text_in_wide_letters_and_of_the_expressions() -> None:
    chance = random.Random(5)
    signs = [chr(code) for code in range(128)]
    for _ in range(200):
        text = "".join(chance.choice(signs) for _ in range(chance.randrange(200)))
        plain, wide = counts_of(text, text), counts_of(text, f"{text} \u0416")  # one more word, and no longer ASCII
        assert plain["the number of words"] == len(re.findall(r"[^\W\d_]+", text)) == wide["the number of words"] - 1
        for name in ("the number of numbers", "the number of tags", "the number of signs", "the number of lines"):
            assert plain[name] == wide[name]
        assert plain["the number of words of the prompt"] == wide["the number of words of the prompt"]
        assert plain["the number of numbers"] == len(re.findall(r"\d+", text))
        assert plain["the share of digits"] * max(1, len(text)) == pytest.approx(sum(map(str.isdigit, text)))
