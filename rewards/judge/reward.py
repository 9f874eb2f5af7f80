"""Provides the reward `judge`: a language model scores by a rubric, over any OpenAI-compatible endpoint."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from grpo.plugins.decorators import reward
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Completion, Scored

if TYPE_CHECKING:
    from grpo.rewards.judge.client import Reply
    from grpo.rewards.judge.endpoint import Endpoint

_CORRECT = "The answer is correct: it reaches the same result as the reference answer, where there is one."
_REMEMBERED = 100_000
_MOST_POINTS = 100
_MILLION = 1_000_000
_LEAST = dict.fromkeys(("retries", "input_price", "output_price", "temperature"), 0)
_LEAST |= {"max_tokens": 1, "max_concurrency": 1, "max_characters": 2}

_verdicts: OrderedDict[str, int] = OrderedDict()
_verdicts_lock = threading.Lock()


def prepare(**given: Any) -> None:
    """Refuses options that cannot work, a missing key, and an endpoint that does not answer."""
    from grpo.rewards.judge.endpoint import Endpoint, refuse_unusable

    for name in ("model", "rubric"):
        if not given[name].strip():
            raise OptionError(f"judge: {name} is blank. Write {name}=... into the SPEC or the table of the reward.")
    if not 1 <= given["points"] <= _MOST_POINTS:
        raise OptionError(f"judge: points={given['points']}. Choose 1 to {_MOST_POINTS}; 10 is usual.")
    for name, least in _LEAST.items():
        if not least <= (given[name] or 0) < float("inf"):
            raise OptionError(f"judge: {name}={given[name]}. Choose {least} or more.")
    if not 0 < given["request_timeout"] < float("inf"):
        raise OptionError(f"judge: request_timeout={given['request_timeout']}. Choose seconds above 0.")
    refuse_unusable(Endpoint(**{field.name: given[field.name] for field in fields(Endpoint)}))


@reward(
    version=1,
    range=(0.0, 1.0),
    isolation="inline",
    timeout=3600.0,
    prepare=prepare,
    cases=[
        Case("The capital of France is Paris.", {"question": "What is the capital of France?", "answer": "Paris"}, 1.0),
        Case("The capital of France is Lyon.", {"question": "What is the capital of France?", "answer": "Paris"}, 0.0),
        Case("", {"question": "What is the capital of France?", "answer": "Paris"}, 0.0),
    ],
)
async def judge(
    completion: Completion | str,
    question: Any = "",
    answer: Any = "",
    *,
    base_url: str,
    model: str,
    rubric: str = _CORRECT,
    points: int = 10,
    api_key_env: str = "OPENAI_API_KEY",
    temperature: float | None = 0.0,
    max_tokens: int = 1024,
    retries: int = 4,
    request_timeout: float = 60.0,
    max_concurrency: int = 16,
    structured: bool = True,
    max_characters: int = 100_000,
    input_price: float = 0.0,
    output_price: float = 0.0,
    cache: bool = True,
) -> float | Scored:
    """What a language model gives the completion by a rubric: its points as a share of the highest, from 0 to 1.

    The judge sees the prompt, the reference answer and the completion as quoted data, and replies with one JSON object.
    A reply that is anything else, or no reply after the retries, is a failure: the completion is masked. A blank
    completion scores 0 without a question. Metrics: prompt_tokens, completion_tokens, cost (with prices), cached.

    Args:
        completion: what is graded.
        question: the task, for completions without a prompt.
        answer: the reference answer; null or without the column, the judge sees none.
        base_url: the endpoint, up to and with "/v1".
        model: the name of the judge there.
        rubric: what to grade by.
        points: the highest number of points; the judge gives whole ones.
        api_key_env: the environment variable that holds the key; "" for a server without keys.
        temperature: null leaves it to the server.
        max_tokens: of the judge's reply.
        retries: after a first request that met 429, 5xx, a lost connection or a timeout.
        request_timeout: seconds for one request.
        max_concurrency: requests at once from this process.
        structured: ask the server to keep to the JSON schema; one that cannot is asked without it.
        max_characters: of a longer completion the judge sees the first and the last half of so many, and is told.
        input_price, output_price: US dollars per million tokens.
        cache: ask about the same material once in this process; failures are not remembered.

    Raises:
        JudgeError: no verdict could be had.
        OptionError: the key's environment variable is not set.
    """
    import hashlib
    import json

    from grpo.rewards.judge.client import Reply, lock_of
    from grpo.rewards.judge.endpoint import Endpoint
    from grpo.rewards.judge.prompt import material_of

    whole = completion if isinstance(completion, Completion) else Completion(completion)
    if not whole.text.strip():
        return 0.0
    endpoint = Endpoint(
        base_url, model, api_key_env, temperature, max_tokens, retries, request_timeout, max_concurrency, structured
    )
    material = material_of(whole, question, "" if answer is None else answer, max_characters)
    if not cache:
        given, reply = await _judged(endpoint, material, rubric, points)
        return Scored(given / points, _metrics(reply, input_price, output_price))
    asked = [base_url, model, temperature, rubric, points, material]
    name = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
    async with await lock_of(name):
        known = _recalled(name)
        if known is not None:
            return Scored(known / points, _metrics(Reply("", 0, 0), input_price, output_price) | {"cached": 1.0})
        given, reply = await _judged(endpoint, material, rubric, points)
        _remember(name, given)
    return Scored(given / points, _metrics(reply, input_price, output_price) | {"cached": 0.0})


async def _judged(
    endpoint: Endpoint, material: tuple[tuple[str, str], ...], rubric: str, points: int
) -> tuple[int, Reply]:
    from grpo.rewards.judge.client import ask
    from grpo.rewards.judge.prompt import ask_about, reply_schema
    from grpo.rewards.judge.reply import read_points

    messages, mark = ask_about(material, rubric, points)
    reply = await ask(endpoint, messages, reply_schema(points))
    return read_points(reply.text, mark, points), reply


def _metrics(reply: Reply, input_price: float, output_price: float) -> dict[str, float]:
    read, written = reply.prompt_tokens, reply.completion_tokens
    if read is None or written is None:
        return {}
    metrics: dict[str, float] = {"prompt_tokens": read, "completion_tokens": written}
    if input_price or output_price:
        metrics["cost"] = (read * input_price + written * output_price) / _MILLION
    return metrics


def _recalled(name: str) -> int | None:
    with _verdicts_lock:
        if name in _verdicts:
            _verdicts.move_to_end(name)
        return _verdicts.get(name)


def _remember(name: str, given: int) -> None:
    with _verdicts_lock:
        _verdicts[name] = given
        if len(_verdicts) > _REMEMBERED:
            _verdicts.popitem(last=False)
