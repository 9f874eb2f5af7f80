"""Makes the paths of a configuration absolute, so that its run resumes from any folder."""

from __future__ import annotations

from pathlib import Path

from grpo.core.config.plugin_ref import PluginRef
from grpo.core.config.schema import RunConfig
from grpo.plugins._spec.spec_text import is_file


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
