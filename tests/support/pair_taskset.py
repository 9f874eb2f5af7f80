"""A taskset of verifiers whose environment has two agents, as a package would have it."""

from __future__ import annotations

from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["PairEnv", "PairTaskset"]


class EnvConfig(vf.EnvConfig):
    first: vf.AgentConfig = vf.AgentConfig()
    second: vf.AgentConfig = vf.AgentConfig()


class PairEnv(vf.Env[EnvConfig]):
    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.first.run(task)
        await agents.second.run(task)


class PairTaskset(vf.Taskset[vf.Task, vf.TasksetConfig]):
    def load(self) -> Iterable[vf.Task]:
        for number in range(3):
            yield vf.Task(vf.TaskData(prompt=f"Question {number}?"), self.config.task)
