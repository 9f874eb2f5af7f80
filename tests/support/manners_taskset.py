"""A taskset of verifiers whose tasks reword what the policy is told and stop at what it says."""

from __future__ import annotations

from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["MannersTaskset"]


class MannersTask(vf.Task[vf.TaskData]):
    @vf.intercept
    async def polite(self, request: vf.Request) -> vf.Request:
        messages = [
            message.model_copy(update={"content": f"Please: {message.content}"}) for message in request.messages
        ]
        return request.model_copy(update={"messages": messages})

    @vf.stop
    async def rude(self, response: vf.Response) -> bool:
        return "no" in (response.message.content or "")

    @vf.stop
    async def never(self, request: vf.Request) -> bool:
        return "never" in str(request.messages[-1].content)

    @vf.reward
    async def kind(self, trace: vf.Trace) -> float:
        return float(trace.stop_condition == "agent_completed")

    @vf.metric
    async def reworded(self, trace: vf.Trace) -> float:
        return float(len(trace.request_rewrites))


class MannersTaskset(vf.Taskset[MannersTask, vf.TasksetConfig]):
    def load(self) -> Iterable[MannersTask]:
        for asked in ("help", "go", "never"):
            yield MannersTask(vf.TaskData(prompt=asked), self.config.task)
