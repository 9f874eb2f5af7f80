"""A taskset of verifiers, as a package of its own would have it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["ColoursTaskset"]


class Data(vf.TaskData):
    answer: str


class ColoursTask(vf.Task[Data]):
    @vf.reward(weight=0.8)
    async def named(self, task: Data, trace: vf.Trace) -> float:
        match trace.last_reply.partition(" "):
            case ("crash", _, _):
                ctypes.string_at(0)
            case ("fill", _, size):
                return float(len(bytearray(int(size))))
            case ("spin", _, number):
                return float(int(number) ** int(number) ** int(number) > 0)
            case ("wait", _, seconds):
                time.sleep(float(seconds))
            case ("secret", _, name):
                return float(name in os.environ)
            case ("kill", _, _):
                os.kill(os.getpid(), signal.SIGKILL)
        return float(task.answer in trace.last_reply)

    @vf.reward(weight=0.2)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.assistant_messages[-1].content or "") < 20)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class Config(vf.TasksetConfig):
    count: int = 20


class ColoursTaskset(vf.Taskset[ColoursTask, Config]):
    def load(self) -> Iterable[ColoursTask]:
        for number in range(self.config.count):
            answer = ("red", "green", "blue")[number % 3]
            prompt = f"Name colour {number}: {answer}."
            yield ColoursTask(Data(prompt=prompt, system_prompt="Be short.", answer=answer), self.config.task)
