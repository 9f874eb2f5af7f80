"""Plays episodes with agent libraries of Python, which are imported once for all episodes."""

from __future__ import annotations

import importlib
from typing import Any, Literal

from grpo.core.agents.presets.shell import run_command, system_of
from grpo.plugins.agent_decorator import agent
from grpo.plugins.agents import Access, AgentTask

_MINI_END = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_MINI_TASK = (
    "{{ task }}\n\nRun commands with the bash tool. Each runs in a new shell. When the task is done, run "
    f"`{_MINI_END}` alone."
)


@agent(
    version=1,
    name="mini-swe-agent",
    environment={
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would download prices
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
        "MSWEA_SILENT_STARTUP": "1",
    },
    modules=dict.fromkeys(
        ("minisweagent.agents.default", "minisweagent.environments.local", "minisweagent.models.litellm_model"),
        "Install it with: pip install mini-swe-agent",
    ),
)
def mini_swe_agent(task: AgentTask, access: Access, *, steps: int = 30) -> str | None:
    """Plays with mini-swe-agent: one tool, bash, and a short prompt.

    Args:
        task: what is asked.
        access: to the policy.
        steps: the most requests of an episode.
    """
    agents: Any = importlib.import_module("minisweagent.agents.default")
    environments: Any = importlib.import_module("minisweagent.environments.local")
    models: Any = importlib.import_module("minisweagent.models.litellm_model")
    model = models.LitellmModel(
        model_name=f"openai/{access.model}",
        model_kwargs={"api_base": f"{access.url}/v1", "api_key": access.key, "drop_params": True},
    )
    played = agents.DefaultAgent(
        model,
        environments.LocalEnvironment(env={"PAGER": "cat", "MANPAGER": "cat", "LESS": "-R"}),
        system_template="{{ system }}",
        instance_template=_MINI_TASK,
        step_limit=steps,
        cost_limit=0,
    )
    ended = played.run(task.instruction, system=system_of(task))
    return ended.get("submission") or None


@agent(
    version=1,
    name="openai-agents",
    protocols=("chat", "responses"),
    modules={"agents": "Install it with: pip install openai-agents"},
)
async def openai_agents(
    task: AgentTask, access: Access, *, api: Literal["chat", "responses"] = "chat", turns: int = 20
) -> str:
    """Plays with the OpenAI Agents SDK: one tool, bash.

    Args:
        task: what is asked.
        access: to the policy.
        api: the API that it calls.
        turns: the most requests of an episode.
    """
    agents: Any = importlib.import_module("agents")
    agents.set_tracing_disabled(True)
    client = agents.AsyncOpenAI(base_url=f"{access.url}/v1", api_key=access.key)
    kind = agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
    played = agents.Agent(
        name="task",
        instructions=system_of(task),
        model=kind(model=access.model, openai_client=client),
        tools=[agents.function_tool(run_command, name_override="bash")],
    )
    result = await agents.Runner.run(played, task.instruction, max_turns=turns)
    return str(result.final_output)


@agent(
    version=1,
    modules={"smolagents": "Install it with: pip install 'smolagents[openai]'"},
)
def smolagents(task: AgentTask, access: Access, *, code: bool = False, steps: int = 20) -> str:
    """Plays with smolagents: one tool, bash.

    Args:
        task: what is asked.
        access: to the policy.
        code: it writes Python that calls the tool (CodeAgent), and no tool calls.
        steps: the most steps of an episode.
    """
    library: Any = importlib.import_module("smolagents")
    model = library.OpenAIModel(model_id=access.model, api_base=f"{access.url}/v1", api_key=access.key)
    kind = library.CodeAgent if code else library.ToolCallingAgent
    played = kind(tools=[library.tool(_bash)], model=model, max_steps=steps, verbosity_level=0)
    return str(played.run(task.text))


def _bash(command: str) -> str:
    """Runs a bash command and returns its output.

    Args:
        command: the command.
    """
    return run_command(command)


_bash.__name__ = "bash"
