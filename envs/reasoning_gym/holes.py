"""What is known of the graders of reasoning-gym: a dataset's name in, a warning for its user out.

What a systematic probe found is data (`probed.json`, written by `probe`): which answers that solve nothing get full
marks of each grader as published, and what any text earns. Here it is said in words, beside what the probe cannot find
because it takes knowing the grader. `guest` refuses what stands in `HOLES`, unless the user wants the graders as
published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PROBED = Path(__file__).parent / "probed.json"
_RUNS = "runs an answer as Python"
HOLES: Mapping[str, str] = {
    "binary_matrix": _RUNS,
    "coin_flip": "gives full marks to a number that only begins like the right one, such as 0",
    "complex_arithmetic": "gives full marks to nan",
    "countdown": f"{_RUNS}, and takes calculations that the problem does not allow",
    "game_of_life_halting": "gives full marks to every text that is not empty",
    "intermediate_integration": f"{_RUNS}, and gives full marks to an integral that is left to the grader",
    "n_queens": _RUNS,
    "number_sorting": "gives full marks to a list of nan",
    "polynomial_multiplication": f"{_RUNS}, and gives full marks to a call that multiplies out",
    "propositional_logic": "gives full marks to premises that are repeated, joined or weakened; "
    "where the premises contradict each other (a quarter of the problems), to everything",
    "puzzle24": f"{_RUNS}, and takes any four numbers, and 24.9 for 24",
    "simple_integration": f"{_RUNS}, and gives full marks to an integral that is left to the grader",
    "spiral_matrix": _RUNS,
    "string_insertion": _RUNS,
}
# What is paid short of full marks and is left as it is.
WEAK: Mapping[str, str] = {
    "figlet_font": "pays 0.1 for each letter in its place, also those of any text",
    "game_of_life": "pays for each cell, so that an empty board gets up to 0.94",
    "prime_factorization": "pays 0.5 for repeating the number",
    "spell_backward": "pays for letters in their place, also those of any text",
}


@cache
def probed() -> Mapping[str, Any]:
    """Returns the table of the probe: `version`, `rows`, `answers`, `full_marks` and `any_text` by dataset."""
    table: dict[str, Any] = json.loads(PROBED.read_text("utf-8"))
    return table


def warning(member: str) -> str:
    """Returns what a user should know of a dataset's grader, or ""."""
    parts = []
    if member in HOLES:
        parts.append(f"{HOLES[member]}; such answers are refused, unless the option as_published=true is set")
    if member in WEAK:
        parts.append(WEAK[member])
    if member in probed()["any_text"]:
        parts.append(f"pays {probed()['any_text'][member]:g} for any text")
    said = f"the grader of reasoning_gym:{member} {'; it '.join(parts)}" if parts else ""
    installed = installed_version()
    if installed != probed()["version"]:
        newer = (
            f"the graders of reasoning-gym {probed()['version']} were probed for answers that cheat them, not those of "
            f"{installed}, which is installed"
        )
        said = f"{said}. {newer[0].upper()}{newer[1:]}" if said else newer
    return said


def installed_version() -> str:
    """Returns the version of reasoning-gym that is installed, or "none"."""
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        return "none"
