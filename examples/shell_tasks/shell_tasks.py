"""Small tasks in a shell, their agent and their reward, for a model of half a billion parameters on two cores.

    make agent-model && .venv/bin/pip install mini-swe-agent
    cd examples/shell_tasks
    grpo run --env ./shell_tasks.py:shell_tasks --agent ./shell_tasks.py:one_shell --lora \
        --model ../../.agent-model/Qwen2.5-Coder-0.5B-Instruct

The agent is mini-swe-agent with a prompt of its own: it runs the commands that the policy writes in blocks. What counts
is the file that they leave behind.
"""

from __future__ import annotations

import random
from typing import Any

import gymnasium

from grpo import Completion, agent, env, reward
from grpo.plugins.agents import Access, AgentTask

SYSTEM = """You work in a Linux shell. Answer with one command in a block, like this:

```bash
ls
```

You are then shown what it printed."""


def rows(split: str, *, size: int = 200) -> list[dict[str, Any]]:
    """Returns tasks: a number in a file, and what to do with it. The numbers of the two splits differ."""
    numbers = random.Random(0).sample(range(100, 1000), 900)
    chosen = numbers[:size] if split == "train" else numbers[-100:]
    task = "The file number.txt holds a number. Write twice that number to the file answer.txt."
    return [{"question": task, "answer": str(2 * n), "files": {"number.txt": f"{n}\n"}} for n in chosen]


class ShellTasks(gymnasium.Env[str, str]):
    """Gives the task of a row; the agent does the rest."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        row = (options or {})["row"]
        return row["question"], {"prompt": [{"role": "user", "content": row["question"]}], "row": row}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 0.0, True, False, {}


@reward(version=1, range=(0.0, 1.0))
def answer_file(completion: Completion, answer: str) -> float:
    """1 when answer.txt holds the answer and nothing else, else 0."""
    written = completion.info.get("files", {}).get("answer.txt") or ""
    return float(written.strip() == answer)


@env(version=1, dataset=rows, rewards=["answer_file"])
def shell_tasks(*, size: int = 200) -> gymnasium.Env[str, str]:
    """Tasks with a file that holds a number."""
    return ShellTasks()


@agent(
    version=1,
    environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_SILENT_STARTUP": "1"},
    modules=dict.fromkeys(
        ("minisweagent.agents.default", "minisweagent.models.litellm_textbased_model"),
        "Install it with: pip install mini-swe-agent",
    ),
)
def one_shell(task: AgentTask, access: Access, *, steps: int = 2) -> None:
    """Plays with mini-swe-agent: a command in a block at a time.

    Args:
        task: what is asked.
        access: to the policy.
        steps: the most commands.
    """
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

    model = LitellmTextbasedModel(
        model_name=f"openai/{access.model}",
        model_kwargs={"api_base": f"{access.url}/v1", "api_key": access.key, "drop_params": True},
        action_regex=r"```(?:bash|sh)?[ \t]*\n(.*?)\n?```",
        observation_template="{{ output.output }}",
        format_error_template="Answer with exactly one command in a block.",
        cost_tracking="ignore_errors",
    )
    played = DefaultAgent(
        model, LocalEnvironment(timeout=10), system_template=SYSTEM, instance_template="{{ task }}", step_limit=steps
    )
    played.run(task.instruction)
