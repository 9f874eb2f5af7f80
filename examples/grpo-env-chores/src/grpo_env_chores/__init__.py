"""Provides the environment chores, fifty tasks for a shell, and the agent chores, which asks once.

Keep the imports light: every grpo command that lists plugins makes them.
"""

from __future__ import annotations

from pathlib import Path

from grpo import Access, AgentSpec, AgentTask, EnvSpec, agent, hookimpl, shell_tasks

grpo_contract = 1

TASKS = Path(__file__).parent / "tasks"

chores = shell_tasks(
    TASKS,
    name="chores",
    version=1,
    doc="Asks for small changes of files: sort, count, pick, rename, replace. 40 tasks to train on and 10 held out.",
)


@agent(version=1, name="chores")
def chores_agent(task: AgentTask, access: Access) -> str:
    """Asks once for a block of commands, and runs it.

    Args:
        task: what is asked.
        access: to the policy.
    """
    from grpo_env_chores.agent import run

    return run(task, access)


@hookimpl
def grpo_envs() -> list[EnvSpec]:
    """Offers the environment to grpo."""
    return [chores]


@hookimpl
def grpo_agents() -> list[AgentSpec]:
    """Offers the agent to grpo."""
    return [chores_agent]
