"""A run whose rollouts an agent played: a scripted program of several conversations, recorded as a run records it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from made_run import made_run
from scripted_agents import BASH, Chat, played, system, tool, user

from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.record.run_dir import RolloutRow, RunDir
from grpo.core.rollout.turns.play import Trajectory

OUTPUT = "3 a.txt\n" + "more\n" * 40


def calls_bash(prompt: str) -> str:
    """What the policy says: a command first, and a number when it has read what came of it."""
    if "title" in prompt:
        return "Counting lines"
    if "3 a.txt" in prompt:
        return "There are 3."
    return (
        f"Let me look. <tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': 'wc -l a.txt'}})}</tool_call>"
    )


async def works(chat: Chat) -> str:
    """Asks for a title, uses a tool, branches, has a sub-agent, begins anew from a summary and loses an answer."""
    await chat.ask(system("Give a title."), user(chat.task.instruction))
    asked = (system("Use bash."), user(chat.task.instruction))
    first = await chat.ask(*asked, tools=(BASH,), ignored=("temperature",))
    await chat.ask(*asked, first.turn, tool(OUTPUT, first), tools=(BASH,))
    await chat.ask(*asked, first.turn, tool("3 a.txt", first), user("In other words?"), tools=(BASH,))
    await chat.ask(system("You are a sub-agent."), user("3 a.txt"), tools=(BASH,))
    await chat.ask(system("Use bash."), user("So far: 3 a.txt"), tools=(BASH,))
    await chat.ask(user("lost"), receives=False)
    return "3"


async def breaks(chat: Chat) -> str:
    """Never asks for anything."""
    raise FileNotFoundError("settings.json")


def episode() -> Trajectory:
    """Plays `works` once."""
    (one,), _ = played(load_tokenizer(str(embedded_model_path())), works, calls_bash)
    return one


def failed_episode() -> Trajectory:
    """Plays `breaks` once."""
    (one,), _ = played(load_tokenizer(str(embedded_model_path())), breaks, calls_bash)
    return one


def recorded(row: RolloutRow, one: Trajectory) -> RolloutRow:
    """Returns a rollout as the record of an episode."""
    completion = one.completion
    files = {"a.txt": "4\n", "b.txt": None} if completion.token_ids else {}
    return replace(
        row,
        completion=completion.text,
        tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        messages=json.dumps(list(completion.messages)),
        info=json.dumps({**completion.info, "files": files}),
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
    )


def agent_run(path: Path) -> RunDir:
    """Makes a run of one step: the first three of its four rollouts are `episode()`, the last one failed."""
    one, failed = episode(), failed_episode()
    return made_run(path, steps=1, groups=1, change=lambda row, number: recorded(row, failed if number == 3 else one))
