"""Tasks of verifiers that a policy with nothing but its messages cannot play, as packages have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import verifiers.v1 as vf

__all__ = ["RefusedTaskset"]


class TaskConfig(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig(colocated=True)


class Config(vf.TasksetConfig):
    way: str = "container"
    task: TaskConfig = TaskConfig()


class Plain(vf.Task[vf.TaskData]):
    @vf.reward
    async def good(self, trace: vf.Trace) -> float:
        return 1.0


class Container(Plain):
    NEEDS_CONTAINER: ClassVar[bool] = True


class Runtime(Plain):
    @vf.reward
    async def tested(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        return float((await runtime.run(["true"], {})).exit_code == 0)


class Setup(Plain):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        await runtime.write("question.txt", b"?")


class Remote(vf.Toolset[vf.ToolsetConfig, vf.State]):
    @vf.tool
    async def look(self) -> str:
        """Looks."""
        return "nothing"


class RemoteTools(Plain):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Remote(vf.ToolsetConfig(url="http://localhost:1"))]


class BoxedTools(Plain):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Remote(vf.ToolsetConfig(runtime=vf.DockerConfig()))]


class Beside(vf.Task[vf.TaskData, vf.State, TaskConfig]):
    @classmethod
    def toolsets(cls, config: TaskConfig) -> list[vf.Toolset]:
        return [Remote(config.tools)]


class Reworded(Plain):
    @vf.intercept
    async def censored(self, response: vf.Response) -> vf.Response | None:
        return None


WAYS: dict[str, Any] = {
    "container": Container,
    "runtime": Runtime,
    "setup": Setup,
    "remote": RemoteTools,
    "boxed": BoxedTools,
    "beside": Beside,
    "reworded": Reworded,
    "unasked": Plain,
}


class RefusedTaskset(vf.Taskset[Plain, Config]):
    def load(self) -> Iterable[Plain]:
        way = self.config.way
        for number in range(3):
            prompt = None if way == "unasked" else f"Question {number}?"
            yield WAYS[way](vf.TaskData(prompt=prompt), self.config.task)
