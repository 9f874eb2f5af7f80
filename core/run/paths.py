"""Makes the paths of a configuration absolute, and names the directory of a run that was given none."""

from __future__ import annotations

import re
import time
from pathlib import Path

from grpo.core.config.plugin_ref import PluginRef
from grpo.core.config.schema import RunConfig
from grpo.core.planning.output import RUNS
from grpo.plugins._spec.spec_text import is_file

UNFIT = r"[^\w.+-]+"  # for the name of a folder


def absolute_paths(config: RunConfig) -> RunConfig:
    """Makes the relative paths of a configuration absolute, so that its run resumes from any folder."""

    def whole(text: str | None) -> str | None:
        return str(Path(text).expanduser().resolve()) if text and Path(text).expanduser().exists() else text

    def plugin(source: PluginRef) -> PluginRef:
        if not isinstance(source, str):
            return {**source, "name": plugin(str(source["name"]))} if "name" in source else source
        family, _, member = source.partition(":")
        if family == "trl" and is_file(member):
            return f"trl:{plugin(member)}"
        head, suffix, rest = source.partition(".toml" if ".toml" in source.partition(":")[0] else ".py")
        return f"{whole(head + suffix)}{rest}" if suffix and is_file(source) else source

    canaries = config.canaries.file
    return config.model_copy(
        update={
            "env": tuple(map(plugin, config.env)) if isinstance(config.env, tuple) else plugin(config.env),
            "rewards": tuple(map(plugin, config.rewards)),
            "env_rewards": {env: tuple(map(plugin, rewards)) for env, rewards in config.env_rewards.items()},
            "verifier": config.verifier and plugin(config.verifier),
            "loss": config.loss.model_copy(
                update={"type": plugin(config.loss.type), "advantage": plugin(config.loss.advantage)}
            ),
            "sampler": config.sampler and plugin(config.sampler),
            "model": whole(config.model),
            "dataset": whole(config.dataset),
            "canaries": config.canaries.model_copy(update={"file": canaries and Path(canaries).expanduser().resolve()}),
        }
    )


def unused_path(name: str) -> Path:
    """Returns where a run of that name goes: by its time, and with -2, -3, ... behind where that is taken."""
    path = RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(UNFIT, '-', name)}"
    unused, number = path, 1
    while unused.exists():
        number += 1
        unused = path.with_name(f"{path.name}-{number}")
    return unused
