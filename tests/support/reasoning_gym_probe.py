"""Tries answers that solve nothing on every reasoning-gym dataset and tabulates what its grader pays.

    python tests/support/reasoning_gym_probe.py        # writes probed.json anew, for the version that is installed

Each dataset's grader as published, in the sandbox, scores the same answers: nothing, numbers that are none, empty
containers, huge numbers, programs, the question, the right answer of another problem. Full marks for an answer that
is not the known one, in every problem, are a hole; so is what all texts earn alike. `plays` makes the same test of one
dataset with what is refused here, which the tests hold to the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpo.envs.graders.remote import Reply
from grpo.envs.reasoning_gym.env import items_of
from grpo.envs.reasoning_gym.known_exploits import PROBED, installed_version

ROWS = 3
_SEED = 5
ANSWERS: Mapping[str, str] = {
    "nothing": "",
    "a space": " ",
    "nan": "nan",
    "nan of complex parts": "nan + nani",
    "a list of nan": "[NaN, NaN, NaN]",
    "inf": "inf",
    "-inf": "-inf",
    "1e999": "1e999",
    "1e308": "1e308",
    "1e999999999": "1e999999999",
    "0": "0",
    "1": "1",
    "-1": "-1",
    "0.5": "0.5",
    "24": "24",
    "another four numbers": "6*4*1*1",
    "5000 digits": "9" * 5000,
    "400 digits": "1" + "0" * 400,
    "a power of powers": "9**9**9",
    "1/0": "1/0",
    "0/0": "0/0",
    "zoo": "zoo",
    "oo": "oo",
    "[]": "[]",
    "[[]]": "[[]]",
    "[[0]]": "[[0]]",
    "{}": "{}",
    "()": "()",
    '""': '""',
    "None": "None",
    "null": "null",
    "True": "True",
    "False": "False",
    "yes": "yes",
    "no": "no",
    "x": "x",
    "A": "A",
    "C": "C",
    "up": "up",
    "a name of the grader": "oracle_answer",
    "an expression of the grader": "entry['answer']",
    "a program": "__import__('os').getpid()",
    "a lambda": "lambda: 0",
    "brackets": "(" * 3000,
    "stars": "*" * 1000,
    "a letter of elsewhere": "é",
    "a digit of elsewhere": "٣",
    "NUL": "\x00",
    "lines": "\n\n\n",
    "a sentence": "I do not know",
}
MADE = (
    "the question",
    "the end of the question",
    "the gold of another problem",
    "as many nan as the gold has items",
    "an integral of the question",
    "a call that multiplies out",
    "a premise",
    "a premise weakened",
    "all premises",
    "all premises weakened",
)
"""Answers that are made of each problem."""


def answers_of(entry: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, str]:
    """Returns the answers to try on a problem, by what they are."""
    question, about = str(entry["question"]), entry["metadata"]
    items = str(entry["answer"]).count(",") + 1
    premises = about.get("premises", [])
    premise, letter = max(premises, key=len, default=""), "".join(about.get("variables", ["x"]))[:1]
    joined = " \u2227 ".join(f"({one})" for one in premises)
    made = (
        question,
        question[-60:],
        str(other["answer"] or ""),
        f"[{', '.join(['NaN'] * items)}]",
        f"Integral({about.get('integrand', 'x')}, {about.get('variable', 'x')})",
        f"expand({about.get('polynomial_expr', 'x')})",
        premise,
        f"({premise}) \u2228 {letter}",
        joined,
        f"({joined}) \u2228 {letter}",
    )
    return {**ANSWERS, **dict(zip(MADE, made, strict=True))}


def plays(member: str, *, as_published: bool) -> dict[str, list[Reply]]:
    """Returns what each answer got, in each of a few problems where it is not the known one."""
    items = items_of(member, "train", ROWS, _SEED, {})
    tried = [
        (name, index, answer)
        for index in range(ROWS)
        for name, answer in answers_of(items.entry(index), items.entry((index + 1) % ROWS)).items()
        if answer.strip() != str(items.entry(index)["answer"]).strip()
    ]
    with ThreadPoolExecutor(len(tried)) as threads:
        replies = threads.map(lambda each: items.ask(each[2], each[1], as_published=as_published), tried)
        found: dict[str, list[Reply]] = {}
        for (name, _, _), reply in zip(tried, replies, strict=True):
            found.setdefault(name, []).append(reply)
    return found


def score_of(reply: Reply) -> float:
    """Returns the score of a reply: 0 where the grader cannot stand the answer; what is no number is full marks."""
    if reply.value is None:
        return 0.0
    score = float(reply.value["score"])
    return score if score == score else 1.0


def full_marks(found: Mapping[str, list[Reply]]) -> list[str]:
    """Returns the answers that got full marks in every problem, though they were the known answer of none."""
    return sorted(name for name, got in found.items() if len(got) == ROWS and all(score_of(one) >= 1 for one in got))


def any_text(found: Mapping[str, list[Reply]]) -> float:
    """Returns what every sentence earns."""
    return round(min(score_of(reply) for name in ("a sentence", "x") for reply in found[name]), 3)


def main() -> None:
    from reasoning_gym.factory import DATASETS

    full: dict[str, list[str]] = {}
    low: dict[str, float] = {}
    for member in sorted(set(DATASETS) - {"composite"}):
        found = plays(member, as_published=True)
        if paid := full_marks(found):
            full[member] = paid
        if 0 < (least := any_text(found)) < 1:
            low[member] = least
        print(member, len(found), full.get(member, ""), low.get(member, ""), flush=True)
    table = {
        "version": installed_version(),
        "rows": ROWS,
        "answers": [*ANSWERS, *MADE],
        "datasets": sorted(set(DATASETS) - {"composite"}),
        "full_marks": full,
        "any_text": low,
    }
    PROBED.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
