"""Shows the choices of a multiple-choice row by letters, and reads which of them is the right one.

The layouts are those of the hub: a list of texts (MMLU), lists of texts and labels (ARC), an object of letters (MedQA),
or one text (MathQA). The answer is a letter, a text, or a number from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, TypeGuard

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.errors import DatasetError

_SCALAR = (str, int, float)
_LABELLED = lazy_pattern(r"\(?([A-Za-z])\s*[).:]\s*")
_NUMBER = lazy_pattern(r"[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class Choices:
    """What there is to choose from."""

    labels: tuple[str, ...]  # of the choices, such as letters; none where `text` lists them
    texts: tuple[str, ...]  # of the choices
    text: str  # how they are shown
    numbers: bool = False  # whether the row has them as numbers, which an answer that is a number then names

    def shown_in(self, prompt: str) -> bool:
        """Returns whether a prompt lists them already."""
        if not self.labels:
            return self.text in prompt
        lines = {line.strip().replace(" ", "").lower() for line in prompt.splitlines()}
        forms = ("{}.{}", "{}){}", "({}){}", "{}:{}")
        return all(
            any(form.format(label, text).replace(" ", "").lower() in lines for form in forms)
            for label, text in zip(self.labels, self.texts, strict=True)
        )

    def golds(self, answer: Any, what: str) -> list[str] | None:
        """Returns the label and the text of the choice that an answer names, or None. Raises DatasetError: no such
        number."""
        if isinstance(answer, bool) or not isinstance(answer, _SCALAR) or not self.labels:
            return None
        if self.numbers and str(answer) in self.texts:
            return self._at(self.texts.index(str(answer)))
        number = int(answer) if not isinstance(answer, str) and float(answer).is_integer() else None
        if isinstance(answer, str):
            bare = answer.strip().strip("().:").strip()
            names = [label.lower() for label in self.labels]
            if bare.lower() in names:
                return self._at(names.index(bare.lower()))
            if answer.strip() in self.texts:
                return self._at(self.texts.index(answer.strip()))
            number = int(bare) if _NUMBER.fullmatch(bare) else None
        if number is None:
            return None
        if number >= len(self.labels) or number < 0:
            if str(number) in self.texts:
                return self._at(self.texts.index(str(number)))
            raise DatasetError(
                f"{what} is {number}, and the {len(self.labels)} choices are numbered from 0. Write the letter or the "
                "text of the right choice instead."
            )
        return self._at(number)

    def _at(self, index: int) -> list[str]:
        label, text = self.labels[index], self.texts[index]
        return [label, text] if text.strip() else [label]


def can_be_choices(given: Any) -> bool:
    """Returns whether a value is of a layout that is known."""
    return given is None or read_choices(given) is not None


def read_choices(given: Any) -> Choices | None:
    """Returns the choices that a column holds; None where it holds nothing or nothing that is known."""
    if isinstance(given, str):
        return Choices((), (), given.strip()) if given.strip() else None
    if isinstance(given, Mapping):
        texts, labels = given.get("text"), given.get("label")
        if _listed(texts) and (labels is None or (_listed(labels) and len(labels) == len(texts))):
            return _choices(texts, labels)
        named = {str(name): text for name, text in given.items() if text is not None}
        if named and all(len(name) == 1 and isinstance(text, _SCALAR) for name, text in named.items()):
            return _choices(list(named.values()), list(named))
        return None
    return _choices(given, None) if _listed(given) else None


def _listed(given: Any) -> TypeGuard[Sequence[Any]]:
    return (
        isinstance(given, Sequence)
        and not isinstance(given, str | bytes)
        and len(given) > 0
        and all(isinstance(choice, _SCALAR) for choice in given)
    )


def _choices(given: Sequence[Any], labels: Sequence[Any] | None) -> Choices:
    texts = [str(text).strip() for text in given]
    names = [str(label).strip() for label in labels] if labels is not None else _letters(len(texts))
    heads = [_LABELLED.match(text) for text in texts]
    if all(head is not None and head[1].upper() == name for head, name in zip(heads, names, strict=True)):
        texts = [text[head.end() :] for text, head in zip(texts, heads, strict=True) if head is not None]
    lines = "\n".join(f"{name}. {text}" for name, text in zip(names, texts, strict=True))
    return Choices(tuple(names), tuple(texts), lines, numbers=not any(isinstance(choice, str) for choice in given))


def _letters(count: int) -> list[str]:
    return list(ascii_uppercase[:count]) if count <= len(ascii_uppercase) else [str(n) for n in range(1, count + 1)]
