"""The reward of `benchmarks/scale.py`: noise, by which any group of any model has advantages in any step."""

from __future__ import annotations

import zlib

from grpo import reward


@reward(version=1, range=(0.0, 1.0))
def noise(completion: str) -> float:
    """Scores a completion by a checksum of its text."""
    return (zlib.crc32(completion.encode()) % 1001) / 1000
