"""A taskset of verifiers whose environment talks with its agent, as a package would have it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["RiddlesEnv", "RiddlesTaskset"]


class Data(vf.TaskData):
    number: int


class RiddleTask(vf.Task[Data]):
    @vf.metric
    async def spoken(self, trace: vf.Trace) -> dict[str, float]:
        return {"turns": trace.num_turns, "messages": len(trace.messages)}


class EnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(max_turns=4)


class RiddlesEnv(vf.Env[EnvConfig]):
    """Thinks of a number; the agent guesses it by hints."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await asyncio.sleep(0.06)  # others start meanwhile, and draw from the same numbers
        drawn = random.randrange(10)
        number = task.data.number
        async with agents.player.interaction(task.with_data(prompt=None)) as talk:
            said = await talk.turn(f"Guess {number % 3} or more. Drawn: {drawn}.")
            while not said.terminated and said.last_reply != str(number):
                if said.last_reply == "crash":
                    raise RuntimeError("the riddle is broken")
                await asyncio.sleep(20 if said.last_reply == "hang" else 0.001)
                said = await talk.turn("higher" if said.last_reply < str(number) else "lower")
        talk.trace.record_reward("found", float(said.last_reply == str(number)))

    async def finalize(self, task: vf.Task, episode: vf.Episode) -> None:
        [trace] = episode.traces
        trace.record_metric("ended", float(trace.stop_condition == "user_closed"))


class RiddlesTaskset(vf.Taskset[RiddleTask, vf.TasksetConfig]):
    def load(self) -> Iterable[RiddleTask]:
        for number in range(20):
            yield RiddleTask(Data(prompt="unseen", system_prompt="Play.", number=number % 7), self.config.task)
