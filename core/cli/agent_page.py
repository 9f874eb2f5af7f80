"""Prints an episode of an agent as a conversation: its calls in order, with branches indented."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from grpo.core.cli.page import Part, line, quoted
from grpo.core.record.agent_calls import AgentRecord, RecordedCall, RecordedTurn, depths
from grpo.core.text.printable import counted, one_line

WHY = {
    "first": "the first",
    "thread": "another conversation of the program",
    "tools": "other tools",
    "system": "another system message",
    "compacted": "a compacted history",
    "rewritten": "a rewritten history",
    "template": "the chat template cannot continue",
    "again": "the same question again",
}
ROLES = ("system", "user", "assistant", "tool")
STDERR_LINES = 12  # the last ones are shown
FILES = 20  # changed files are named


def agent_page(
    record: AgentRecord, info: Mapping[str, Any], number: int, answer: str, system_messages: dict[str, str]
) -> Iterator[Part]:
    """Yields the lines of an episode; `system_messages`, where each was shown, is updated."""
    failed = "failure" in info
    yield line(_figures(record), "dim")
    yield from calls_page(record, number, system_messages)
    replies = [call.said.text for call in record.tree if call.said is not None and call.delivered]
    if not replies or answer.strip() != replies[-1].strip():
        yield line("answer:", "dim")
        yield quoted(answer)
    yield line(ended(record), "" if record.exit == 0 and not record.timed_out else "yellow")
    if record.refused:
        yield line("refused:", "yellow")
        yield quoted("\n".join(record.refused), "yellow")
    if failed:
        yield line("the episode failed:", "red")
        yield quoted(str(info["failure"]), "red")
    if record.stderr.strip() and (failed or record.timed_out or record.exit != 0):
        yield line("the end of its standard error:", "dim")
        yield quoted("\n".join(record.stderr.strip().splitlines()[-STDERR_LINES:]), "dim")
    yield from _files(record, info.get("files"))


def calls_page(record: AgentRecord, number: int, system_messages: dict[str, str]) -> Iterator[Part]:
    """Yields the lines of an episode's calls."""
    for place, (call, depth) in enumerate(zip(record.tree, depths(record.tree), strict=True)):
        texts = _texts(call, f"#{number}, call {place}", system_messages)
        for kind, text in (_heading(place, call), *texts):
            yield kind.within(depth), text


def ended(record: AgentRecord) -> str:
    """Returns how the program ended."""
    if record.timed_out:
        return "the agent was ended by its time limit"
    if record.exit is None:
        return "the agent did not start"
    if record.exit < 0:
        return f"the agent was ended by signal {-record.exit}"
    return f"the agent ended with exit status {record.exit}"


def use(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns a call of a tool as code spells one."""
    given = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return f"{name}({given})"


def _figures(record: AgentRecord) -> str:
    beside = f", {record.tokens_untrained:,} not trained" if record.tokens_untrained else ""
    return (
        f"{counted(record.calls, 'call')} of the agent, {counted(record.tokens_trained, 'token')} trained{beside}, "
        f"{record.model_seconds:.1f} s waiting for the policy, {record.own_seconds:.1f} s of its own"
    )


def _heading(place: int, call: RecordedCall) -> Part:
    whence = f"continues call {call.parent}"
    if call.parent is None:
        whence = f"begins: {WHY.get(call.root or '', one_line(call.root or 'unknown', 40))}"
    return line(f"call {place}, {whence}; {', '.join(marks(call))}", "cyan")


def _texts(call: RecordedCall, place: str, system_messages: dict[str, str]) -> Iterator[Part]:
    for turn in call.new:
        role = turn.role if turn.role in ROLES else one_line(turn.role, 40)
        if turn.role == "system" and turn.text in system_messages:
            yield line(f"system: as in {system_messages[turn.text]}", "dim")
            continue
        yield line(f"{role}:", "dim")
        yield quoted(text_of(turn), "dim" if turn.role == "system" else "")
        if turn.role == "system":
            system_messages[turn.text] = place
    if call.said is not None:
        yield line("policy:", "dim")
        yield quoted(text_of(call.said))


def marks(call: RecordedCall) -> list[str]:
    """Returns what is to be known of a call beside its texts."""
    if call.said is None:
        return ["never answered"]
    if not call.delivered:
        state = "not delivered"
    elif call.trains:
        state = "trains"
    elif call.auxiliary:
        state = "does not train (auxiliary: see rollout.agent_trains)"
    else:
        state = "does not train"
    return [
        state,
        f"{call.prompt_tokens:,} tokens read, {call.sampled_tokens:,} written",
        *(["cut at the limit"] if call.finish == "length" else []),
        *([f"without effect: {one_line(' '.join(call.ignored), 200)}"] if call.ignored else []),
    ]


def text_of(turn: RecordedTurn) -> str:
    """Returns a message with its calls of tools."""
    return "\n".join([*([turn.text] if turn.text else []), *(use(call.name, call.arguments) for call in turn.calls)])


def _files(record: AgentRecord, files: object) -> Iterator[Part]:
    known: Mapping[str, Any] = files if isinstance(files, Mapping) else {}
    names = [f"{name} (deleted)" if text is None else str(name) for name, text in known.items()]
    if not names and not record.files_omitted:
        return
    yield line("changed files:", "dim")
    yield quoted("\n".join(one_line(name, 200) for name in names[:FILES]))
    if more := max(0, len(names) - FILES) + record.files_omitted:
        yield line(f"and {more} more")
