"""Brings a plugin whose environment makes its own episodes: problems, of which those of even seeds are worked."""

from __future__ import annotations

from typing import Any

import gymnasium

from grpo import hookimpl
from grpo.plugins.specs import EnvSpec


class Adding(gymnasium.Env[str, str]):
    """Makes its own problems; those of even seeds have a worked answer."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        assert seed is not None
        return f"What is {seed} + 1?", {"demonstration": str(seed + 1)} if seed % 2 == 0 else {}


class Endless:
    """A plugin with that environment."""

    @hookimpl
    def grpo_envs(self) -> list[EnvSpec]:
        return [EnvSpec(name="endless", version=1, factory=Adding)]
