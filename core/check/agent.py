"""Checks an agent without a model: plays one task twice behind the gateway and reports what the agent sends.

Its first requests must be the same, or no two rollouts of a group answer the same prompt.
"""

from __future__ import annotations

import queue
from typing import Any

from grpo.core.agents.program import AgentExit
from grpo.core.agents.runner import AgentRunner
from grpo.core.check.agent_script import ARRIVED, ENDED, MODEL, Arrival, Asked, ScriptedDesk
from grpo.core.check.report import Findings, Report, title_of
from grpo.core.gateway.app import LIMITS, gateway_app
from grpo.core.gateway.conversation import Ask
from grpo.core.http.limits import Callers
from grpo.core.http.serving import HttpServer, bound
from grpo.core.planning.agent import agent_warning
from grpo.core.text.printable import counted
from grpo.plugins._spec.binding import BoundAgent
from grpo.plugins.agents import Access, AgentTask, Protocol
from grpo.plugins.host import bound_of
from grpo.plugins.specs import AgentSpec

SECONDS = 120.0
"""How long an episode may take."""
TASK = AgentTask(
    "Read the number in number.txt, write its double into answer.txt, and say it.",
    files={"number.txt": "21\n"},
)
_EPISODES = 2
_APIS: dict[str, Protocol] = {"completions": "chat", "responses": "responses", "messages": "messages"}
_LAST = 300  # characters of the last line that a program wrote


def check_agent(agent: str | AgentSpec | BoundAgent, *, seconds: float = SECONDS) -> Report:
    """Checks an agent: a SPEC ("claude-code", "cmd:python agent.py"), an `AgentSpec` or a bound agent.

    `seconds`: how long an episode may take. Returns what does not hold and, as facts, what the agent sends; whatever
    the agent does, nothing is raised on its account. Raises UsageError for a SPEC that names no agent, options that it
    does not take, or something that it needs and that is not installed.
    """
    played = bound_of(agent, BoundAgent)
    findings = Findings()
    desk = ScriptedDesk({f"check-key-{number}": f"marker-{number}" for number in range(_EPISODES)})
    ended: queue.SimpleQueue[tuple[int, AgentExit]] = queue.SimpleQueue()
    with (
        _server(desk) as server,
        AgentRunner(played, seconds, lambda number, left: ended.put((number, left))) as runner,
    ):
        for number, key in enumerate(desk.markers):
            runner.start(number, TASK, Access(f"http://127.0.0.1:{server.port}", key, MODEL))
        exits = dict(ended.get() for _ in desk.markers)
        if runner.notice:
            findings.not_tried(runner.notice)
    if warning := agent_warning(played):
        findings.add("warning", "starts", warning)
    for number, key in enumerate(desk.markers):
        _examine(findings, played.spec, exits[number], desk, key)
    first, second = (desk.asked.get(key, [])[:1] for key in desk.markers)
    if first and second:
        _compare(findings, first[0].ask, second[0].ask)
    _describe(findings, exits[0], desk, next(iter(desk.markers)))
    return findings.report(title_of(played))


def _examine(findings: Findings, spec: AgentSpec, left: AgentExit, desk: ScriptedDesk, key: str) -> None:
    asked, marker = desk.asked.get(key, []), desk.markers[key]
    written = "".join((left.stderr.strip() or left.stdout.strip()).splitlines()[-1:])[-_LAST:]
    findings.tried("starts")
    if left.problem:
        findings.add("error", "starts", left.problem, written or None)
        return
    findings.tried("asks the policy")
    refused = [each for each in desk.refused.get(key, ()) if each.code != ENDED]
    if not asked:
        how = "its time was up" if left.timed_out else f"it ended with exit code {left.code}"
        sent = f"the gateway had refused {counted(len(refused), 'request')}"
        sent = sent if refused else "it had sent no request with its key"
        findings.add("error", "asks the policy", f"{how}, and {sent}", str(refused[0]) if refused else written or None)
        return
    if refused:
        message = f"the gateway refused {len(refused)} of its requests"
        findings.add("warning", "asks the policy", message, str(refused[0]))
    findings.tried("declared APIs")
    for api in dict.fromkeys(_APIS[each.arrival.api] for each in asked):
        if api not in spec.protocols:
            declared = ", ".join(spec.protocols)
            findings.add("error", "declared APIs", f"it used {api}, and declares {declared}; add it to protocols")
    if any(each.replies[0].turn.calls for each in asked):
        findings.tried("tool results")
        if not any(marker in turn.text for each in asked for turn in each.ask.messages) and _has_shell(asked):
            findings.add("warning", "tool results", "a tool was called, and no later request has what it printed")
    if len(desk.refused.get(key, ())) > len(refused) and not left.timed_out:
        findings.not_tried(
            f"how it ends: it asked on after {counted(len(asked), 'request')}, which is all that are answered"
        )
        return
    findings.tried("ends by itself")
    if left.timed_out:
        findings.add("error", "ends by itself", f"it ran on after {counted(len(asked), 'request')}", written or None)
    elif left.code:
        message = f"it ended with exit code {left.code} although the task was done"
        findings.add("warning", "ends by itself", message, written or None)


def _has_shell(asked: list[Asked]) -> bool:
    calls = (call for each in asked for reply in each.replies for call in reply.turn.calls)
    return any("marker-" in str(call.arguments) for call in calls)


def _compare(findings: Findings, first: Ask, second: Ask) -> None:
    findings.tried("same prompt")
    if first.tools != second.tools:
        findings.add("error", "same prompt", "the same task was sent with other tools")
    elif first.messages != second.messages:
        texts = ["\n".join(turn.text for turn in ask.messages) for ask in (first, second)]
        at = next((n for n, (left, right) in enumerate(zip(*texts, strict=False)) if left != right), 0)
        shown = " / ".join(text[max(0, at - 20) : at + 40] for text in texts)
        findings.add(
            "error",
            "same prompt",
            "the same task was sent with another text; the rollouts of a group must answer the same prompt",
            shown,
        )


def _describe(findings: Findings, left: AgentExit, desk: ScriptedDesk, key: str) -> None:
    asked = desk.asked.get(key, [])
    if asked:
        first = asked[0]
        tools = [tool["function"]["name"] for tool in first.ask.tools]
        findings.fact(
            f"first request: {_APIS[first.arrival.api]}, {'streamed' if first.ask.stream else 'not streamed'}, "
            f"{first.arrival.size} bytes, {counted(len(first.ask.messages), 'message')}, "
            f"{counted(len(tools), 'tool')}{': ' if tools else ''}{', '.join(tools)}"
        )
        root = (_system(first.ask), first.ask.tools)
        helpers = sum((_system(each.ask), each.ask.tools) != root for each in asked)
        sent = [(each.ask.messages, each.ask.tools) for each in asked]
        repeated = sum(request in sent[:at] for at, request in enumerate(sent))
        threads = len({each.ask.thread for each in asked if each.ask.thread})
        findings.fact(
            f"requests: {len(asked)}, of them {counted(helpers, 'helper call')} (another system prompt or other tools) "
            f"and {repeated} repeated; {counted(threads, 'conversation')} named in headers"
        )
        if ignored := list(dict.fromkeys(name for each in asked for name in each.ask.ignored)):
            findings.fact(f"parameters that the run decides: {', '.join(ignored)}")
    if not left.problem:
        message = "the policy's last message" if asked else "none, because the policy never answered"
        answer = message if left.answer is None else repr(left.answer[:_LAST].strip())
        refused = f", {len(desk.refused[key])} refused" if key in desk.refused else ""
        how = "its time was up" if left.timed_out else f"exit code {left.code}"
        findings.fact(f"end: {how} after {left.seconds:.1f} s{refused}; answer: {answer}")


def _system(ask: Ask) -> str:
    return "\n".join(turn.text for turn in ask.messages if turn.role == "system")


def _server(desk: ScriptedDesk) -> HttpServer:
    app = gateway_app(desk)

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        arrival = Arrival(scope["path"].rpartition("/")[2])
        ARRIVED.set(arrival)

        async def counted_bytes() -> Any:
            message = await receive()
            arrival.size += len(message.get("body", b""))
            return message

        await app(scope, counted_bytes, send)

    return HttpServer(recorded, bound("127.0.0.1", 0), Callers(hosts=None), LIMITS)
