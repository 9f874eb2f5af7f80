"""Asks the judge over `openai`'s client.

A client belongs to its event loop, so each loop has its own clients, turns and locks, in an async generator that the
loop closes. The client retries transient errors; others are a `JudgeError`. A server that does not know JSON schemas
says so once, and is then asked without one.
"""

from __future__ import annotations

import asyncio
import re
import weakref
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from grpo.plugins.types import Message
from grpo.rewards.judge.connection import connect, refusal
from grpo.rewards.judge.endpoint import Endpoint, without
from grpo.rewards.judge.reply import JudgeError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_NO_SCHEMA = re.compile(r"response_format|json_schema|schema|structured|grammar|guided", re.IGNORECASE)
_LONGEST_WAIT = 60.0  # the client waits no longer before a retry
_CUT_SHORT = ("length", "content_filter", "tool_calls", "function_call")


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    text: object  # the content of the message
    # prompt_tokens, completion_tokens: as the server counts them, or None
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True, slots=True)
class _Dialect:
    schema: bool
    limit: str = "max_tokens"


@dataclass(slots=True)
class _Loop:
    clients: dict[tuple[Any, ...], AsyncOpenAI] = field(default_factory=dict)
    turns: dict[tuple[str, int], asyncio.Semaphore] = field(default_factory=dict)
    locks: weakref.WeakValueDictionary[str, asyncio.Lock] = field(default_factory=weakref.WeakValueDictionary)
    lifetime: AsyncGenerator[None] | None = None


_loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
_dialects: dict[tuple[str, str], _Dialect] = {}


async def ask(endpoint: Endpoint, messages: Sequence[Message], schema: dict[str, Any]) -> Reply:
    """Asks the judge; waits for a turn first. Raises JudgeError if no complete reply came, after the retries."""
    import openai

    here = await _here()
    key = endpoint.key
    wanted = (endpoint.base_url, key, endpoint.retries, endpoint.request_timeout)
    client = here.clients.get(wanted)
    if client is None:
        client = connect(endpoint.base_url, key, timeout=endpoint.request_timeout, retries=endpoint.retries)
        here.clients[wanted] = client
    place = (endpoint.base_url, endpoint.max_concurrency)
    turns = here.turns.setdefault(place, asyncio.Semaphore(endpoint.max_concurrency))
    limit = (endpoint.retries + 1) * endpoint.request_timeout + endpoint.retries * _LONGEST_WAIT
    async with turns:
        try:
            async with asyncio.timeout(limit):
                reply = await _asked(client, endpoint, messages, schema)
        except TimeoutError:
            raise JudgeError(f"the judge gave no complete reply within {limit:g} s.") from None
        except openai.OpenAIError as error:
            refused = refusal(error)
            why = str(refused) if refused else f"{type(error).__name__}: {error}"
            # Not chained: what the server said may hold the key, and a traceback would print it.
            raise JudgeError(f"the judge failed: {without(key, why)}") from None
        except (ValueError, RecursionError) as error:
            raise JudgeError(f"the judge's server sent no JSON: {without(key, str(error))}") from None
    return _read(reply)


async def lock_of(name: str) -> asyncio.Lock:
    """Returns the lock of that name on this loop; the same one as long as it is held."""
    locks = (await _here()).locks
    lock = locks.get(name)
    if lock is None:
        lock = locks[name] = asyncio.Lock()
    return lock


async def _asked(client: Any, endpoint: Endpoint, messages: Sequence[Message], schema: dict[str, Any]) -> Any:
    import openai

    place = (endpoint.base_url, endpoint.model)
    dialect = _dialects.get(place, _Dialect(schema=True))
    if not endpoint.structured:
        dialect = replace(dialect, schema=False)
    while True:
        request: dict[str, Any] = {
            "model": endpoint.model,
            "messages": list(messages),
            dialect.limit: endpoint.max_tokens,
        }
        if endpoint.temperature is not None:
            request["temperature"] = endpoint.temperature
        if dialect.schema:
            strict = {"name": "verdict", "strict": True, "schema": schema}
            request["response_format"] = {"type": "json_schema", "json_schema": strict}
        try:
            reply = await client.chat.completions.create(**request)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            simpler = _simpler(dialect, str(error))
            if simpler is None:
                raise
            dialect = simpler
            continue
        if endpoint.structured:
            _dialects[place] = dialect
        return reply


def _simpler(dialect: _Dialect, complaint: str) -> _Dialect | None:
    """The dialect to try after a complaint; None when the complaint is about something else."""
    if dialect.limit == "max_tokens" and "max_completion_tokens" in complaint:
        return replace(dialect, limit="max_completion_tokens")
    if dialect.schema and _NO_SCHEMA.search(complaint):
        return replace(dialect, schema=False)
    return None


def _read(reply: Any) -> Reply:
    choices = getattr(reply, "choices", None)
    if not choices:
        raise JudgeError("the judge's reply has no choices.")
    choice = choices[0]
    message = getattr(choice, "message", None)
    refusal, ending = getattr(message, "refusal", None), getattr(choice, "finish_reason", None)
    if refusal:
        raise JudgeError(f"the judge refused: {str(refusal)[:200]}")
    if ending in _CUT_SHORT:
        raise JudgeError(f"the judge's reply is not complete (finish_reason '{ending}').")
    usage = getattr(reply, "usage", None)
    return Reply(
        getattr(message, "content", None),
        _count(getattr(usage, "prompt_tokens", None)),
        _count(getattr(usage, "completion_tokens", None)),
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


async def _here() -> _Loop:
    loop = asyncio.get_running_loop()
    if loop not in _loops:
        for closed in [known for known in list(_loops) if known.is_closed()]:
            _loops.pop(closed, None)
        here = _loops[loop] = _Loop()
        here.lifetime = _until_closed(loop, here)
        await anext(here.lifetime)
    return _loops[loop]


async def _until_closed(loop: asyncio.AbstractEventLoop, here: _Loop) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _loops.pop(loop, None)
        for client in here.clients.values():
            await client.close()
