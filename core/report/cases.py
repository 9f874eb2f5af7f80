"""What a regression case of a run's rewards needs: a configuration in, columns and options of each reward out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo.core.record.run_dir import is_run
from grpo.plugins._binding import BoundReward
from grpo.plugins._spec_text import parse
from grpo.plugins.errors import GrpoError
from grpo.plugins.host import Host
from grpo.plugins.rubric import parts


def cases_of(host: Host, config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns by reward what the page writes a `Case` with; a reward that is not installed here is left out.

    Args:
        host: finds the rewards.
        config: of a run, as config.json has it.
    """
    found: dict[str, dict[str, Any]] = {}
    for reward in _rewards(host, config):
        for part in parts(reward):
            found[part.name] = {
                "columns": None if part.spec.whole else [name for column in part.spec.columns for name in column.names],
                "options": repr(dict(part.options)) if part.options else None,
                "grouped": part.grouped,
            }
    return found


def _rewards(host: Host, config: Mapping[str, Any]) -> Iterator[BoundReward]:
    """Yields the rewards of a run that can be found here: its own, those of its environments, else their defaults."""
    envs = config["env"] if isinstance(config["env"], list) else [config["env"]]
    for source in (*config["rewards"], *(own for each in config.get("env_rewards", {}).values() for own in each)):
        try:
            if not _brought_along(source):
                yield host.reward(source)
        except GrpoError:
            continue
    if not config["rewards"]:
        for source in envs:
            try:
                if not _brought_along(source):
                    yield from host.default_rewards(host.env(source))
            except GrpoError:
                continue


def _brought_along(source: Any) -> bool:
    """True for a plugin of a file in a run directory: a run may be anybody's, and to bind a plugin runs its file.

    Raises:
        UsageError: the text does not follow the syntax.
    """
    path = parse(source).path
    return bool(path) and any(map(is_run, Path(path).expanduser().resolve().parents))
