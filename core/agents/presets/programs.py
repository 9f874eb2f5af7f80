"""Starts agent programs that users install, with settings that keep their prompts small."""

from __future__ import annotations

from grpo.core.agents.presets.shell import system_of
from grpo.plugins.agent_decorator import agent
from grpo.plugins.agents import Access, AgentTask, Command


@agent(
    version=1,
    name="claude-code",
    protocols=("messages",),
    environment={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",  # it refuses to work for root without asking, unless something else keeps it in
    },
    programs={"claude": "Install it with: npm install -g @anthropic-ai/claude-code"},
)
def claude_code(task: AgentTask, access: Access, *, tools: str = "Bash") -> Command:
    """Plays with Claude Code: --bare, a short system prompt and one tool.

    Args:
        task: what is asked.
        access: to the policy.
        tools: the names of its tools, separated by commas.
    """
    settings = ["--bare", "--dangerously-skip-permissions", "--model", access.model]
    argv = ["claude", "--print", *settings, "--system-prompt", system_of(task), "--tools", tools]
    return Command(argv, stdin=task.instruction)


@agent(
    version=1,
    protocols=("responses",),
    programs={"codex": "Install it with: npm install -g @openai/codex"},
)
def codex(task: AgentTask, access: Access) -> Command:
    """Plays with Codex: short instructions, no web search, no sub-agents and no goals."""
    import json

    instructions = f"{task.home}/.codex/instructions.md"
    config = f"""model = {json.dumps(access.model)}
model_provider = "grpo"
model_instructions_file = {json.dumps(instructions)}
web_search = "disabled"
check_for_update_on_startup = false

[features]
multi_agent = false
goals = false

[model_providers.grpo]
name = "grpo"
base_url = {json.dumps(f"{access.url}/v1")}
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
    argv = ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"]
    files = {"~/.codex/config.toml": config, "~/.codex/instructions.md": system_of(task)}
    return Command(argv, files=files, stdin=task.instruction)


@agent(
    version=1,
    environment={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    programs={"opencode": "Install it with: npm install -g opencode-ai"},
)
def opencode(task: AgentTask, access: Access) -> Command:
    """Plays with opencode: an agent with a short prompt and one tool, and no call for a title."""
    import json

    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{access.url}/v1", "apiKey": access.key},
        "models": {access.model: {}},
    }
    played = {"mode": "primary", "prompt": system_of(task), "tools": {"*": False, "bash": True}}
    config = {
        "provider": {"grpo": provider},
        "agent": {"task": played},
        "permission": {"bash": "allow"},
        "autoupdate": False,
        "share": "disabled",
    }
    argv = ["opencode", "run", "--agent", "task", "--title", "task", "--model", f"grpo/{access.model}"]
    return Command(
        [*argv, "--", task.instruction], files={"~/.config/opencode/opencode.json": json.dumps(config, indent=1)}
    )


@agent(
    version=1,
    name="qwen-code",
    programs={"qwen": "Install it with: npm install -g @qwen-code/qwen-code"},
)
def qwen_code(task: AgentTask, access: Access) -> Command:
    """Plays with Qwen Code: --bare and a short system prompt."""
    settings = ["--bare", "--yolo", "--auth-type", "openai", "--model", access.model, "--chat-recording=false"]
    return Command(["qwen", *settings, "--system-prompt", system_of(task)], stdin=task.instruction)
