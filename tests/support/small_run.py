"""Small runs in this process, without a display."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo.core.run.endings import RunSummary


def run_of(settings: dict[str, Any]) -> RunSummary:
    """Runs a configuration from the beginning to the end."""
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    return start(parse_config(settings), Host.discover(), Silent())


def small_run(out: Path, **settings: Any) -> RunSummary:
    """Runs a few short steps on the embedded rows; `settings` change them, section by section."""
    tree: dict[str, Any] = {
        "env": "gsm8k",
        "dataset": "embedded",
        "out": str(out),
        "train": {"steps": 2, "prompts_per_step": 2, "group_size": 4},
        "rollout": {"max_completion_length": 12},
        "evaluation": {"size": 0},
    }
    for name, value in settings.items():
        tree[name] = {**tree.get(name, {}), **value} if isinstance(value, dict) else value
    return run_of(tree)
