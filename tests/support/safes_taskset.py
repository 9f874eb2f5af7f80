"""A taskset of verifiers with tools, a state that they share with a stop, and a setup, as a package would have it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

import verifiers.v1 as vf

__all__ = ["SafesTaskset"]


class Data(vf.TaskData):
    code: int


class State(vf.State):
    tries: int = 0
    opened: bool = False
    greeting: str = ""


class Dial(vf.Toolset[vf.ToolsetConfig, State]):
    TOOL_PREFIX = "dial"

    async def setup_task(self, task: Data) -> None:
        self.code = task.code

    @vf.tool
    async def turn(self, number: int) -> str:
        """Turns the dial to a number."""
        self.state.tries += 1
        self.state.opened = number == self.code
        return "It opens." if self.state.opened else "higher" if number < self.code else "lower"

    @vf.tool
    def divide(self, number: float) -> dict[str, float]:
        """Divides one by a number."""
        return {"part": 1 / number}


class Clock(vf.Toolset[vf.SharedToolsetConfig, State]):
    set_up: ClassVar[int] = 0

    async def setup(self) -> None:
        Clock.set_up += 1

    @vf.tool
    async def tries(self) -> str:
        """Tells how often the dial was turned."""
        return str(self.state.tries)

    @vf.tool(name="wait")
    def hang(self, seconds: float) -> str:
        """Waits."""
        time.sleep(seconds)
        return "later"


class SafeTask(vf.Task[Data, State]):
    async def setup(self, trace: vf.Trace, runtime: object) -> None:
        trace.state.greeting = f"safe {self.data.code}"

    async def finalize(self, trace: vf.Trace, runtime: object) -> None:
        trace.info["roles"] = [message.role for message in trace.messages]

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Dial(vf.ToolsetConfig())]

    @vf.stop
    async def open(self, trace: vf.Trace) -> bool:
        return bool(trace.state.opened)

    @vf.reward
    async def opened(self, trace: vf.Trace) -> float:
        assert trace.state.greeting == f"safe {self.data.code}"
        return float(trace.state.opened)

    @vf.metric
    async def asked(self, trace: vf.Trace) -> dict[str, float]:
        calls = [call for message in trace.assistant_messages for call in message.tool_calls or ()]
        return {
            "tries": trace.state.tries,
            "turns": trace.num_turns,
            "calls": len(calls),
            "answers": len(trace.tool_messages),
            "linked": float({one.tool_call_id for one in trace.tool_messages} <= {call.id for call in calls}),
            "roles": len(trace.info["roles"]),
            "stopped": float(trace.stop_condition == "open"),
        }


class SafesTaskset(vf.Taskset[SafeTask, vf.TasksetConfig]):
    @classmethod
    def toolsets(cls, config: vf.TasksetConfig) -> list[vf.Toolset]:
        return [Clock(vf.SharedToolsetConfig())]

    def load(self) -> Iterable[SafeTask]:
        for code in range(20):
            yield SafeTask(Data(prompt="Open the safe.", system_prompt="Use the dial.", code=code), self.config.task)
