"""Makes all diagnoses in the order in which trouble in one explains trouble in the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from grpo.core.doctor.around import SELF_TEST, docker, hub, plugins, sandbox, training
from grpo.core.doctor.lines import Line, looked
from grpo.core.doctor.machine import accelerator, machine
from grpo.core.doctor.versions import versions

SOON = 20.0  # seconds for a look
LIBRARIES = 90.0  # for one that imports torch


def examine(folder: Path, *, train: bool, on_line: Callable[[Line], object] = lambda line: None) -> list[Line]:
    """Looks at everything that a run needs. `folder`: where runs would be written."""
    looks: list[tuple[str, Callable[[], Iterable[Line]], float]] = [
        ("versions", versions, SOON),
        ("machine", partial(machine, folder), LIBRARIES),
        ("GPU", accelerator, LIBRARIES),
        ("plugins", plugins, LIBRARIES),
        ("sandbox", sandbox, SOON),
        ("docker", docker, SOON),
        ("hub", hub, SOON),
    ]
    if train:
        looks.append(("training", training, SELF_TEST + SOON))
    lines: list[Line] = []
    for about, look, seconds in looks:
        for line in looked(about, look, seconds):
            lines.append(line)
            on_line(line)
    return lines
