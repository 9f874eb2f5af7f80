"""Offers the built-in agents through the hook that packages use. Importing this module loads no agent."""

from __future__ import annotations

from grpo.core.agents.presets.command_line import cmd
from grpo.core.agents.presets.libraries import mini_swe_agent, openai_agents, smolagents
from grpo.core.agents.presets.programs import claude_code, codex, opencode, qwen_code
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import AgentSpec

grpo_contract = 1


@hookimpl
def grpo_agents() -> list[AgentSpec]:
    return [cmd, claude_code, codex, mini_swe_agent, openai_agents, opencode, qwen_code, smolagents]
