"""How many rows and tokens of an agent's episode train, here and by OpenEnv's capture of the same calls?

    pip download --no-deps openenv==0.10.0 && unzip openenv-*.whl -d FOLDER
    python benchmarks/openenv_graph.py FOLDER

Scripted agents play an episode each behind our desk. Their calls, with the messages as the agent sent them and the
tokens that were sampled, then go through OpenEnv's `RolloutGraph`, which links a call to another whose tokens begin its
prompt. A prompt there is what an inference server makes of the messages: rendered and tokenised whole. The graph is
loaded from its file, because its package needs a web framework to be imported.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from scripted_agents import BASH, PARAMS, Chat, Coroutines, Rounds, event_loop, system, tool, user

from grpo.core.env.episodes import Episode
from grpo.core.env.tools import ToolCall
from grpo.core.gateway.conversation import ChatTurn, Reply
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.rollout.agents.desk import AgentDesk, AgentEpisode, CallLimits
from grpo.core.rollout.agents.player import AgentLimits, AgentPlayer
from grpo.core.rollout.agents.splice import Splice
from grpo.plugins.types import Message

GRAPH = Path("openenv/core/harness/capture/graph.py")
TURNS = 6


def writing(form: Callable[[ToolCall], str]) -> Callable[[str], str]:
    """A policy that asks for a command in this form, and says a sentence between blanks where it has no tool."""

    def says(prompt: str) -> str:
        number = prompt.count("<|im_start|>assistant")
        command = ToolCall("bash", {"command": f"wc -l {number}.txt", "shell": "sh"})
        return form(command) if "bash" in prompt else f" Step {number}.\n"

    return says


def by_hand(call: ToolCall) -> str:
    """A call as a policy may write it: on a line of its own."""
    return f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': call.arguments})}\n</tool_call>"


def talking(change: Callable[[Reply], ChatTurn]) -> Callable[[Chat], Awaitable[None]]:
    """An agent that uses a tool some times, and sends back what it makes of each answer."""

    async def talks(chat: Chat) -> None:
        messages: list[ChatTurn] = [system("Use bash."), user(chat.task.instruction)]
        for number in range(TURNS):
            reply = await chat.ask(*messages, tools=(BASH,))
            messages += [change(reply), tool(f"{number} lines", reply)]

    return talks


def reordered(reply: Reply) -> ChatTurn:
    calls = [replace(one, arguments=dict(reversed(list(one.arguments.items())))) for one in reply.turn.calls]
    return replace(reply.turn, calls=tuple(calls))


async def strips(chat: Chat) -> None:
    """Answers without tools, whose blanks at both ends are left out of the history."""
    messages = [user(chat.task.instruction)]
    for number in range(TURNS):
        reply = await chat.ask(*messages)
        messages += [replace(reply.turn, text=reply.turn.text.strip()), user(f"And {number}?")]


async def compacts(chat: Chat) -> None:
    """Begins anew from a summary in the middle."""
    messages: list[ChatTurn] = [system("Use bash."), user(chat.task.instruction)]
    for number in range(TURNS):
        if number == TURNS // 2:
            messages = [messages[0], user("So far: three files were counted. Go on.")]
        reply = await chat.ask(*messages, tools=(BASH,))
        messages += [reply.turn, tool(f"{number} lines", reply)]


async def delegates(chat: Chat) -> None:
    """Has a sub-agent with another system message look into the second step."""
    messages: list[ChatTurn] = [system("Use bash."), user(chat.task.instruction)]
    for number in range(TURNS // 2):
        reply = await chat.ask(*messages, tools=(BASH,))
        if number == 1:
            below: list[ChatTurn] = [system("You are a sub-agent."), user("Count the lines.")]
            for _ in range(TURNS // 2):
                answer = await chat.ask(*below, tools=(BASH,))
                below += [answer.turn, tool("3 lines", answer)]
        messages += [reply.turn, tool(f"{number} lines", reply)]


AGENTS = {
    "history sent back as it was": talking(lambda reply: reply.turn),
    "the same, each call on a line of its own": talking(lambda reply: reply.turn),
    "arguments reordered": talking(reordered),
    "blanks stripped": strips,
    "history compacted": compacts,
    "a sub-agent": delegates,
}


class KeepingDesk(AgentDesk):
    """Keeps the episodes that it opened."""

    kept: list[AgentEpisode]

    def open(self, number: int, table: Any) -> AgentEpisode:
        self.kept = [super().open(number, table)]
        return self.kept[0]


def measure(
    tokenizer: Any, agent: Callable[[Chat], Awaitable[Any]], graph: Any, *, own_line: bool
) -> tuple[list[int], list[int]]:
    """Returns roots, rows, tokens that train and those that train twice, of ours and of OpenEnv's."""
    with event_loop() as loop:
        splice = Splice(tokenizer)
        desk = KeepingDesk("policy", splice, CallLimits(calls=20, sampled=200, total=4000, context=None))
        limits = AgentLimits(seconds=60.0, at_once=1)
        player = AgentPlayer(desk, "", Coroutines(loop, desk, agent), limits, tokenizer.eos_token_id)
        start = Episode(0, (Message(role="user", content="How many lines?"),), {}, None, env="tasks", group=0)
        form = by_hand if own_line else partial(splice.format((BASH,)).text, tokenizer)
        rounds = Rounds(tokenizer, writing(form))
        (one,) = player.play([start], [[1]], rounds, replace(PARAMS, max_tokens=200))
    assert one.completion.finish_reason == "stop", one.completion.info
    calls = desk.kept[0].tree.calls
    trained = sum(sum(branch.sampled) for branch in one.branches)
    sampled = sum(len(call.ids) for call in calls)
    ours = [sum(call.parent is None for call in calls), len(one.branches), trained, max(0, trained - sampled)]
    theirs = graph.RolloutGraph()
    for call in calls:
        prompt = list(splice.whole(call.ask.messages, call.ask.tools))
        theirs.add_turn(graph.TurnNode(str(call.number), prompt, list(call.ids), list(call.logprobs)))
    rows = theirs.sequences()
    total = sum(row.n_trainable for row in rows)
    return ours, [len(theirs.roots()), len(rows), total, max(0, total - sampled)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where openenv's wheel was unpacked")
    spec = importlib.util.spec_from_file_location("openenv_graph_of_calls", parser.parse_args().folder / GRAPH)
    assert spec is not None
    assert spec.loader is not None
    graph = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = graph
    spec.loader.exec_module(graph)
    tokenizer = load_tokenizer(str(embedded_model_path()))
    print("| episode | roots | rows | tokens that train | twice | OpenEnv: roots | rows | tokens that train | twice |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, agent in AGENTS.items():
        ours, theirs = measure(tokenizer, agent, graph, own_line="line of its own" in name)
        print(f"| {name} | {' | '.join(map(str, [*ours, *theirs]))} |")


if __name__ == "__main__":
    main()
