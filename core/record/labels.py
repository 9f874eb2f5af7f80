"""Reads and writes a person's labels of a run: tags, a note, and whether lists leave it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from grpo.core.record.run_dir import LONGEST_SETTINGS, RunDir, read_json, write_json
from grpo.plugins.errors import UsageError

MOST_TAGS = 32
LONGEST_TAG = 64  # characters
LONGEST_NOTE = 10_000


@dataclass(frozen=True, slots=True)
class Labels:
    """A person's labels of a run."""

    tags: tuple[str, ...] = ()  # words to find it by, each once
    note: str = ""  # a text, or ""
    hidden: bool = False  # lists leave it out


def labels_of(value: Any) -> Labels:
    """Reads labels from what JSON holds. Raises UsageError if it does not hold labels."""
    known = {"tags": list, "note": str, "hidden": bool}
    fits = isinstance(value, Mapping) and all(isinstance(value.get(key, kind()), kind) for key, kind in known.items())
    if not fits or set(value) - set(known) or not all(isinstance(tag, str) for tag in value.get("tags", [])):
        raise UsageError("labels are a list of texts 'tags', a text 'note' and a truth value 'hidden'.")
    tags = tuple(dict.fromkeys(" ".join(tag.split()) for tag in value.get("tags", []) if tag.strip()))
    note = value.get("note", "")
    if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in tags) or len(note) > LONGEST_NOTE:
        raise UsageError(
            f"a run has up to {MOST_TAGS} tags of {LONGEST_TAG} characters each and a note of {LONGEST_NOTE:,}. "
            "Shorten them."
        )
    return Labels(tags, note, value.get("hidden", False))


def read_labels(run: RunDir) -> Labels:
    """Returns the labels of a run; none where they cannot be read, since only a list depends on them."""
    try:
        return labels_of(read_json(run.labels, longest=LONGEST_SETTINGS) or {})
    except (UsageError, OSError, ValueError):
        return Labels()


def write_labels(run: RunDir, labels: Labels) -> None:
    """Writes the labels of a run. Raises UsageError if they cannot be written."""
    try:
        write_json(run.labels, asdict(labels))
    except OSError as error:
        raise UsageError(f"cannot write {run.labels}: {error.strerror}. Copy the run to where you may write.") from None
