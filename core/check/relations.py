"""Tests the relations between the scores of a plugin's cases.

Hacking probes are errors only for a plugin that claims correctness, from a column whose value is in the gold
completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grpo.core.check import texts as check_texts
from grpo.core.check.answers import Example, Slot, answer_column, find_slot
from grpo.core.check.executors import check_executors
from grpo.core.check.report import Severity
from grpo.core.check.scores import Check, ExampleResult
from grpo.plugins.rubric import RubricSpec

_MOST_GOLDS = 8
_MOST_IN_ROOMS = 24
_SMALL = 0.1
_OF_ANSWERS = "right and wrong answers, other spellings of a number, alternatives and look-alikes"


@dataclass(frozen=True, slots=True)
class Gold:
    """A completion that deserves the highest score, what it scored, and where its answer stands."""

    example: Example
    score: float
    slot: Slot | None


class Relations:
    """Tries the relations of one plugin."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._findings = check.findings
        self._lowest = 0.0
        self._claims = False
        self._enlarged = False
        self._serious: Severity = "warning"

    def try_all(self, golds: Sequence[tuple[Example, float]], others: Sequence[Example], answer: str | None) -> None:
        """Tries all relations on the gold examples; `answer` is the gold's column, None to find it out."""
        examples = [example for example, _ in golds]
        spec = self._check.bound.spec
        columns = list(examples[0].row) if spec.any_column else [column.name for column in spec.columns]
        column = answer or answer_column(examples, columns)
        self._claims = column is not None
        self._serious = "error" if self._claims else "warning"
        self._say_what_is_left_out(examples, columns, column)
        kept = [
            Gold(example, score, find_slot(example, column) if column else None)
            for example, score in golds[:_MOST_GOLDS]
        ]
        if not self._silence(kept[0]):
            self._findings.not_tried("whatever compares with the gold, since silence scores as high as it")
        else:
            for gold in kept:
                self._alike(check_texts.layout_forms(gold.example), gold.score)
                if gold.slot is not None:
                    self._answers(gold, gold.slot)
                    self._order(gold, gold.slot)
                    self._probes(gold, check_texts.guesses(gold.slot))
                self._probes(gold, check_texts.farming(gold.example))
            if not self._enlarged and any(gold.slot is not None and gold.slot.value is not None for gold in kept):
                self._findings.not_tried("thousands comma: with 1200 in the place of the answer no gold text stays one")
            if self._claims:
                self._probes(kept[0], check_texts.outside_texts(kept[0].example))
        for (relation, example), result in self._scored(check_texts.megabytes(kept[0].example)):
            if self._claims and result.reaches(kept[0].score):
                self._findings.add("error", relation, f"it {result}, as high as the gold", example.text[:60])
        self._columns(kept[0], column)
        if self._check.bound.grouped:  # its groups are compared in every executor, by check_groups
            return
        derived = [example for _, example in check_texts.layout_forms(kept[0].example)]
        sample = [*examples, *others, *derived][:_MOST_IN_ROOMS]
        check_executors(self._check, sample, self._check.score(sample))

    def _say_what_is_left_out(self, golds: Sequence[Example], columns: Sequence[str], column: str | None) -> None:
        if column is None and columns:
            self._findings.not_tried(
                f"{_OF_ANSWERS}: no text with the highest score states what a column holds ({', '.join(columns)}). "
                "If one holds the right answer, add a case that states it"
            )
        elif column is not None and not any(find_slot(example, column) for example in golds[:_MOST_GOLDS]):
            self._findings.not_tried(f"{_OF_ANSWERS}: the gold of the column '{column}' occurs in no gold text")
        if len(golds) > _MOST_GOLDS:
            self._findings.not_tried(f"the gold texts after the first {_MOST_GOLDS} ({len(golds) - _MOST_GOLDS} more)")

    def _silence(self, gold: Gold) -> bool:
        """Checks that silence scores less than the gold; the rest makes no sense otherwise."""
        below = True
        lowest = gold.score
        for (relation, example), result in self._scored(check_texts.silences(gold.example, claims=self._claims)):
            if result.reaches(gold.score):
                below = below and example.text != ""
                what = f"the gold scores {gold.score:g}, and silence {result}"
                self._findings.add(self._serious, relation, what, example.text)
            if result.kind == "abstain" and self._claims:
                what = "silence is not an abstention: it then counts as the mean of its group and costs nothing"
                self._findings.add("warning", relation, what, example.text)
            if result.value is not None:
                lowest = min(lowest, result.value)
        self._lowest = lowest
        return below

    def _answers(self, gold: Gold, slot: Slot) -> None:
        self._alike(check_texts.answer_forms(slot), gold.score)
        larger = slot.enlarged()
        if larger is None:
            return
        # A reward that looks at more than the answer, such as the working, need not like the larger number.
        base = self._check.score_one(larger.example)
        if base.reaches(gold.score):
            self._enlarged = True
            self._alike(check_texts.answer_forms(larger), gold.score)

    def _order(self, gold: Gold, slot: Slot) -> None:
        scored = self._scored(check_texts.worse_answers(slot))
        above = None
        for (relation, example), result in scored:
            if result.reaches(gold.score):
                what = f"a {relation} answer {result}, and the gold {gold.score:g}"
                self._findings.add("error", relation, what, example.text)
            if above is not None and above.value is not None and not above.reaches(result.value or above.value):
                what = f"a near answer {above}, and a wrong one {result}"
                self._findings.add("error", "near >= wrong", what, example.text)
            above = result
        self._findings.tried("wrong >= silence")
        (_, example), wrong = scored[-1]
        silent = self._check.score_one(Example("", example.row))
        if wrong.value is not None and silent.value is not None and not wrong.reaches(silent.value):
            what = f"a wrong answer {wrong}, and silence {silent}"
            self._findings.add("warning", "wrong >= silence", what, example.text)

    def _probes(self, gold: Gold, texts: Iterable[check_texts.Named]) -> None:
        for (relation, example), result in self._scored(texts):
            if result.reaches(gold.score):
                what = f"it {result}, as high as the gold ({gold.score:g})"
                self._findings.add(self._serious, relation, what, example.text)

    def _columns(self, gold: Gold, column: str | None) -> None:
        spec, example = self._check.bound.spec, gold.example
        required = [(known.name, known.names) for known in spec.columns if known.required]
        for name, names in [(name, (name,)) for name in example.row] if spec.any_column else required:
            self._findings.tried("missing column")
            rest = {key: value for key, value in example.row.items() if key not in names}
            result = self._check.score_one(Example(example.text, rest))
            if result.kind == "score" and (not spec.any_column or not result.reaches(gold.score)):
                what = f"without the column '{name}' it {result}; it must fail"
                self._findings.add("error", "missing column", what, example.text)
        if column is not None and column in example.row:
            self._findings.tried("unusable gold")
            result = self._check.score_one(Example(example.text, {**example.row, column: None}))
            if result.reaches(gold.score):
                # Of a rubric, components that read no gold may rightly carry the score when those that do abstain; and
                # what scores rows without the column may rightly score this one.
                optional = any(known.name == column and not known.required for known in spec.columns)
                severity: Severity = "note" if optional or isinstance(spec, RubricSpec) else "error"
                self._findings.add(severity, "unusable gold", f"with {column}=None it {result}", example.text)

    def _alike(self, texts: Iterable[check_texts.Named], score: float) -> None:
        """Reports texts that mean what the gold means and score otherwise; a small difference is a warning."""
        for (relation, example), result in self._scored(texts):
            if result.kind == "failure" or result.same(ExampleResult("score", score)):
                continue
            small = result.value is not None and abs(score - result.value) <= _SMALL * (score - self._lowest)
            what = f"same answer as the gold, which scores {score:g}, but it {result}"
            self._findings.add("warning" if small else "error", relation, what, example.text)

    def _scored(self, texts: Iterable[check_texts.Named]) -> list[tuple[check_texts.Named, ExampleResult]]:
        """Scores derived texts, each of which a policy may write."""
        named = list(texts)
        scored = list(zip(named, self._check.score_written([example for _, example in named]), strict=True))
        for (relation, _), result in scored:
            self._findings.tried(relation)
            if result.kind == "abstain" and self._check.bound.spec.kind == "verifier" and not result.reason:
                self._findings.add("error", "undecided with a reason", "it is undecided and does not say why")
        return scored
