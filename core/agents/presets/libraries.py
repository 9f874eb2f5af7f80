"""Plays episodes with agent libraries of Python, which are imported once for all episodes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Literal

from grpo.core.agents.presets.shell import run_command, system_of
from grpo.core.text.printable import one_line
from grpo.plugins.agent_decorator import agent
from grpo.plugins.agents import Access, AgentTask
from grpo.plugins.errors import UsageError

_MINI_END = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_MINI_TASK = (
    "{{ task }}\n\nRun commands with the bash tool. Each runs in a new shell. When the task is done, run "
    f"`{_MINI_END}` alone."
)
_MINI = {
    "agent": {"system_template": "{{ system }}", "instance_template": _MINI_TASK, "step_limit": 30, "cost_limit": 0},
    "environment": {"env": {"PAGER": "cat", "MANPAGER": "cat", "LESS": "-R"}},
}
_MINI_CLASSES = (
    ("agent", "agent_class", ("default",)),
    ("environment", "environment_class", ("local",)),
    ("model", "model_class", ("litellm", "litellm_textbased")),
)


def _refuse_config(*, config: Path | None = None, **_: object) -> None:
    """Refuses a file of mini-swe-agent that lacks a template, or names another service, machine or kind of agent."""
    import yaml

    if config is None:
        return
    who = f"agent 'mini-swe-agent': config={config}"
    try:
        settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{who} cannot be read: {one_line(str(error), 200)}") from error
    sections = settings if isinstance(settings, dict) else {}
    for name in ("system_template", "instance_template"):
        if name not in (sections.get("agent") or {}):
            raise UsageError(f"{who} lacks agent.{name}. Write a whole file, as for `mini -c FILE`.")
    for section, key, allowed in _MINI_CLASSES:
        named = (sections.get(section) or {}).get(key, allowed[0])
        if named not in allowed and "." not in str(named):  # with a dot it is a class of the user's own
            raise UsageError(
                f"{who} names {section}.{key}: {named}, which does not play an episode here. "
                f"Write {' or '.join(allowed)}, or leave it out."
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
    prepare=_refuse_config,
)
def mini_swe_agent(
    task: AgentTask, access: Access, *, steps: int | None = None, config: Path | None = None
) -> str | None:
    """Plays with mini-swe-agent: one tool, bash, and a short prompt, or with the settings of a file.

    Args:
        task: what is asked.
        access: to the policy.
        steps: the most requests of an episode; without it 30, or what `config` says.
        config: a YAML file as `mini -c` takes it, with templates, limits and how an answer is read. The run sets the
            model's name and address. `{{task_system}}` stands for the environment's system message.
    """
    agents: Any = importlib.import_module("minisweagent.agents")
    environments: Any = importlib.import_module("minisweagent.environments")
    models: Any = importlib.import_module("minisweagent.models")
    if config is None:
        settings: dict[str, Any] = _MINI
        variables = {"system": system_of(task)}
    else:
        settings = importlib.import_module("minisweagent.config").get_config_from_spec(config)
        variables = {"task_system": task.system or ""}
    model = dict(settings.get("model") or {})
    reached = {"api_base": f"{access.url}/v1", "api_key": access.key, "drop_params": True}
    model["model_kwargs"] = {**(model.get("model_kwargs") or {}), **reached}
    played = agents.get_agent(
        models.get_model(f"openai/{access.model}", model),
        environments.get_environment(settings.get("environment") or {}, default_type="local"),
        settings["agent"] | ({} if steps is None else {"step_limit": steps}),
        default_type="default",
    )
    ended = played.run(task.instruction, **variables)
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
