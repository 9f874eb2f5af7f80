"""Chooses a plugin's gold examples among its cases, or makes them where no case states its row's gold answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo.core.check.answers import ANSWER_NAMES, LAYOUTS, Example, find_slot, gold_text, last_number
from grpo.core.check.scores import Check, ExampleResult
from grpo.plugins.types import Case

_MOST_ROWS = 4
_MOST_MADE = 3
_LIKE_BEFORE = 0.25  # the part of its score that a gold keeps when options change, unless they change what is right


def find_golds(
    check: Check, declared: Sequence[Case], matching: Sequence[Case], answer: str | None
) -> tuple[list[tuple[Example, float]], list[Example]]:
    """Returns the examples that deserve the highest score, each with its score, and the others.

    With options set, or for a reward of groups, whose cases score a text among others, the gold is what scores highest
    here and more than silence. `answer`: the column with the gold answer; None to find it out.
    """
    bound, findings = check.bound, check.findings
    examples: list[Example] = []
    due: list[float | None] = []  # what each is to score
    for case in (*matching, *declared) if bound.options else matching:
        for text, expect in zip(case.texts, case.expected, strict=True):
            if (example := Example(text, case.row)) not in examples:
                examples.append(example)
                due.append(wanted(expect).value)
    scores = [result.value for result in check.score_written(examples)]
    worth = scores if bound.options or bound.grouped else due
    highest = max((value for value in worth if value is not None), default=None)
    golds = [
        (example, score)
        for example, score, value in zip(examples, scores, worth, strict=True)
        if highest is not None and value == highest and score is not None
    ]
    if not bound.grouped:
        golds = _higher(check, examples, golds, answer) or golds
    if bound.grouped and (not golds or check.score_one(Example("", golds[0][0].row)).reaches(golds[0][1])):
        what = "alone, none of its texts scores more than silence, so that only its groups were compared"
        findings.add("note", "member alone", what)
        return [], examples
    top = getattr(bound.spec, "range", (0.0, 1.0))[1]
    promised = max((wanted(expect).value or 0.0 for case in declared for expect in case.expected), default=0.0)
    reached = max((score for _, score in golds), default=0.0)
    if math.isfinite(top) and golds and not ExampleResult("score", max(promised, reached)).reaches(top):
        findings.not_tried(f"what scores more than {reached:g}: no case reaches {top:g}, the top of its range")
    if not golds:
        if examples:
            findings.add("warning", "gold", "no case has a score to expect, so nothing was compared with one")
        return [], examples
    silent = check.score_one(Example("", golds[0][0].row))
    if bound.options and silent.reaches(golds[0][1]):
        findings.add("error", "gold", f"with these options none of its cases scores more than silence, which {silent}")
        return [], examples
    if bound.options and not matching and reached < promised * _LIKE_BEFORE:
        what = f"with these options the best of its cases scores {reached:g}, without them {promised:g}: which text is "
        findings.add("warning", "gold", f"{what}right is not known. Add a case that sets these options")
        return [], examples
    golden = [example for example, _ in golds]
    return golds, [example for example in examples if example not in golden]


def wanted(expect: float | bool | None) -> ExampleResult:
    """Returns the result that a case expects."""
    return ExampleResult("abstain") if expect is None else ExampleResult("score", float(expect))


def _higher(
    check: Check, examples: Sequence[Example], golds: Sequence[tuple[Example, float]], answer: str | None
) -> list[tuple[Example, float]]:
    """Returns texts that state the gold of a case's row and score more than every case; none where a case states it."""
    spec = check.bound.spec
    names = [column.name for column in spec.columns]
    columns = [answer] if answer else [name for name in ANSWER_NAMES if spec.any_column or name in names]
    if any(find_slot(example, column) for example, _ in golds for column in columns):
        return []
    made = [example for example in _stating(examples, columns) if example not in examples]
    scored = [(example, result.value) for example, result in zip(made, check.score(made), strict=True)]
    highest = max((score for _, score in golds), default=None)
    best = max((score for _, score in scored if score is not None), default=None)
    if highest is None or best is None or ExampleResult("score", highest).reaches(best):
        return []
    higher = [(example, score) for example, score in scored if score == best][:_MOST_MADE]
    what = f"no case states the gold; this text does and scores {best:g}, the best case {highest:g}. Add it as a case"
    check.findings.add("note", "gold", what, higher[0][0].text)
    return higher


def _stating(examples: Sequence[Example], columns: Sequence[str]) -> Iterator[Example]:
    """Yields texts that state the gold of an example's row: its text with the last number replaced, plain layouts."""
    rows: list[Mapping[str, Any]] = []
    for example in examples:
        for column in columns:
            gold = gold_text(example.row.get(column))
            if gold is None:
                continue
            if (place := last_number(example.text)) is not None:
                yield Example(example.text[: place[0]] + gold + example.text[place[1] :], example.row)
            if example.row not in rows and len(rows) < _MOST_ROWS:
                rows.append(example.row)
                yield from (Example(layout.format(gold), example.row) for layout in LAYOUTS)
