"""Encodes the difference of two tensors in as few bytes as possible, and applies it.

Theory of operation. A step at a learning rate of 1e-6 moves about one in two hundred bfloat16 weights, scattered, so
changes are sent entry by entry: where, and the new value, bit for bit. Entries are compared as integers, so every NaN
is itself and -0.0 is not 0.0. Positions take the shortest of a bitmap, or gaps between changed entries as words of 8 or
16 bits, whose largest says that the gap goes on. Where all of that is no less than half of the tensor, there are no
`Changes`, and the tensor is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

Form = Literal["bitmap", "gaps8", "gaps16"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
_AS_NUMBERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an entry
_GAP_WORDS: Final[dict[Form, Any]] = {"gaps8": np.uint8, "gaps16": np.dtype("<u2")}
_PER_WORD = 8  # bytes that are compared at once
_DENSE = 4  # one of so many words changed: from there on a bitmap is hardly longer, and found much faster


@dataclass(frozen=True, slots=True)
class Changes:
    """The entries of a tensor that changed."""

    form: Form
    positions: Bytes  # [P] uint8
    values: torch.Tensor  # [n] the new entries in the order of their positions, in the tensor's own type, on the CPU

    @property
    def bytes(self) -> int:
        return self.positions.nbytes + self.values.nbytes


def changes_between(old: torch.Tensor, new: torch.Tensor) -> Changes | None:
    """Returns what makes `new` of `old`, both contiguous and on the CPU, or None where that is not worth it."""
    if new.element_size() not in _AS_NUMBERS:
        return None
    before, after = _numbers(old), _numbers(new)
    places = _positions(before, after)
    if places is None:
        mask = before != after
        form: Form = "bitmap"
        positions = np.packbits(mask)
        values = after[mask]
    else:
        form, positions = _shortest(places, after.size)
        values = after[places]
    if 2 * (positions.nbytes + values.nbytes) >= new.nbytes and new.nbytes:
        return None
    return Changes(form, positions, torch.from_numpy(values).view(new.dtype))


def applied(old: torch.Tensor, changes: Changes) -> torch.Tensor:
    """Returns a new tensor: `old` [contiguous, on the CPU] with the entries that changed. Raises ValueError."""
    if changes.values.dtype != old.dtype or changes.values.ndim != 1:
        raise ValueError(f"{changes.values.dtype} values for a tensor of {old.dtype}")
    positions = _read(changes, old.numel())
    new = old.clone()
    numbers = _numbers(new)
    if len(positions) != changes.values.numel():
        raise ValueError(f"{changes.values.numel()} values for {len(positions)} positions")
    numbers[positions] = _numbers(changes.values)
    return new


def _numbers(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Returns a tensor's entries [N] as integers of the same bits, in the same memory."""
    return np.asarray(tensor.detach().reshape(-1).view(_AS_NUMBERS[tensor.element_size()]).numpy())


def _positions(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> Numbers | None:
    """Returns the positions [n] of entries that differ, or None for so many that a bitmap is shorter."""
    per = _PER_WORD // after.itemsize
    whole = after.size - after.size % per
    differs = before[:whole].view(np.int64) != after[:whole].view(np.int64)
    if _DENSE * int(np.count_nonzero(differs)) > max(differs.size, _PER_WORD):
        return None
    words = np.flatnonzero(differs)
    places = words[:, None] * per + np.arange(per)
    inside = places[before[:whole].reshape(-1, per)[words] != after[:whole].reshape(-1, per)[words]]
    rest = whole + np.flatnonzero(before[whole:] != after[whole:])
    return np.concatenate([inside, rest], dtype=np.int64)


def _shortest(positions: Numbers, size: int) -> tuple[Form, Bytes]:
    gaps = np.diff(positions, prepend=-1) - 1
    lengths: dict[Form, int] = {"bitmap": -(-size // 8)}
    for form, word in _GAP_WORDS.items():
        most = np.iinfo(word).max
        lengths[form] = np.dtype(word).itemsize * (len(gaps) + int((gaps // most).sum()))
    form = min(lengths, key=lambda name: lengths[name])
    if form == "bitmap":
        mask = np.zeros(size, dtype=bool)
        mask[positions] = True
        return form, np.packbits(mask)
    word = _GAP_WORDS[form]
    most = np.iinfo(word).max
    words = np.full(lengths[form] // np.dtype(word).itemsize, most, dtype=word)
    words[np.cumsum(gaps // most + 1) - 1] = gaps % most
    return form, words.view(np.uint8)


def _read(changes: Changes, size: int) -> Numbers:
    data = changes.positions
    if changes.form == "bitmap":
        if len(data) != -(-size // 8):
            raise ValueError(f"a bitmap of {len(data)} bytes for {size} entries")
        bits = np.unpackbits(data).view(bool)
        if bits[size:].any():
            raise ValueError("a bitmap that goes on behind the last entry")
        return np.flatnonzero(bits)
    word = np.dtype(_GAP_WORDS[changes.form])
    if len(data) % word.itemsize:
        raise ValueError(f"{len(data)} bytes are no words of {word.itemsize}")
    words = np.ascontiguousarray(data).view(word)
    ends = words != np.iinfo(word).max
    if len(words) and not ends[-1]:
        raise ValueError("the last gap does not end")
    positions: Numbers = np.cumsum(words, dtype=np.int64)[ends]
    positions += np.arange(len(positions))
    if len(positions) and positions[-1] >= size:
        raise ValueError(f"position {positions[-1]} of {size} entries")
    return positions
