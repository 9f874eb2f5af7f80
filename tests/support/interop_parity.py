"""Run in an environment that has verifiers and inspect_ai: what each makes of the completions, as JSON on stdout."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from interop_rewards import TEXTS

import grpo


async def in_verifiers(spec: str) -> list[Any]:
    import verifiers.v1 as vf
    from verifiers.v1.errors import TaskError
    from verifiers.v1.trace import AgentInfo, TraceTask

    class Data(vf.TaskData):
        answer: str

    class Task(vf.Task[Data]):
        lent = grpo.to_verifiers(spec, weight=2.0)

    task = Task(Data(prompt="What is 6 * 12?", answer="72"))
    found: list[Any] = []
    for text in TEXTS:
        trace = vf.Trace(
            task=TraceTask(type="Task", data=task.data), agent=AgentInfo(config=vf.AgentConfig()), root_reply=text
        )
        try:
            await task.score(trace)
        except TaskError as error:
            found.append(f"failed: {error}")
            continue
        [name] = trace.rewards or [None]
        reward = trace.rewards[name] if name else None
        assert reward is None or trace.reward == 2.0 * reward.score
        assert trace.metrics[f"{spec.rpartition(':')[2]}/abstain"] == float(reward is None)
        found.append(reward and reward.score)
    return found


def in_inspect(spec: str, folder: str) -> list[Any]:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def output(text: str) -> ModelOutput:
        made = ModelOutput.from_content("mockllm/model", text)
        made.usage = ModelUsage()  # or it would be counted by a tokenizer from the network
        return made

    samples = [Sample(id=i, input="What is 6 * 12?", target="72") for i in range(len(TEXTS))]
    model = get_model("mockllm/model", custom_outputs=[output(text) for text in TEXTS])
    task = Task(dataset=samples, scorer=grpo.to_inspect(spec))
    [log] = eval(task, model=model, log_dir=folder, display="none", max_samples=1, max_connections=1)
    assert log.status == "success", log.error
    assert log.samples is not None
    found: list[Any] = []
    for sample in sorted(log.samples, key=lambda one: one.id):
        [score] = (sample.scores or {}).values()
        unscored = score.value != score.value
        found.append((score.reason, score.explanation) if unscored else score.value)
    assert log.results is not None
    numbers = [value for value in found if isinstance(value, float)]
    mean = log.results.scores[0].metrics["mean"].value
    assert abs(mean - sum(numbers) / len(numbers)) < 1e-9, (mean, numbers)
    return found


if __name__ == "__main__":
    library, folder, *specs = sys.argv[1:]
    values = [asyncio.run(in_verifiers(spec)) if library == "verifiers" else in_inspect(spec, folder) for spec in specs]
    print(json.dumps(values))
