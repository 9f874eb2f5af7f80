"""Checks the options for the LLM judge's endpoint and its calls.

Before a model loads it refuses options, a missing package or key, and a server that does not answer. The key stays in
the environment, and is taken out of every text.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from grpo.plugins.errors import OptionError, UsageError
from grpo.rewards.judge.connection import Redirected, connect, refusal

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_KEY = "none"  # the client insists on a key; a server without keys ignores it
_PROBE = 10.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the judge is, and how it is asked."""

    base_url: str  # up to and with "/v1"
    model: str  # its name there
    api_key_env: str  # the environment variable that holds the key; "" when the server needs none
    temperature: float | None  # None leaves it to the server
    max_tokens: int  # of the reply
    retries: int  # after the first request
    request_timeout: float  # seconds for one request
    max_concurrency: int  # requests at once, by loop and server
    structured: bool  # ask for the JSON schema

    @property
    def key(self) -> str:
        """The key. Raises OptionError if the environment variable is not set, or is not a name of one."""
        if not self.api_key_env:
            return _NO_KEY
        if not _ENV_NAME.fullmatch(self.api_key_env):
            raise OptionError(
                "judge: api_key_env is not the name of an environment variable. Put the key into a variable and name "
                'it, as in api_key_env=OPENAI_API_KEY; the key itself is never an option. Write api_key_env="" for a '
                "server without keys."
            )
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise OptionError(
                f"judge: the environment variable {self.api_key_env} is not set. Export the key for {self.base_url} "
                'there, name another variable with api_key_env=..., or write api_key_env="" for a server without keys.'
            )
        if not (key.isascii() and key.isprintable()):
            raise OptionError(f"judge: what {self.api_key_env} holds is not a key: a key is printable ASCII.")
        return key


def refuse_unusable(endpoint: Endpoint) -> None:
    """Refuses an endpoint without client or key, or that does not let us list its models."""
    try:
        url = urlsplit(endpoint.base_url)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        raise OptionError("judge: base_url is not a URL. Write it as in http://localhost:8000/v1") from None
    if "@" in url.netloc or url.query or url.fragment:
        raise OptionError(
            "judge: base_url holds a user, a query or a fragment, which would be written down with the run. Leave them "
            "out; a key belongs into an environment variable (api_key_env=...)."
        )
    if not usable:
        raise OptionError(
            f"judge: base_url={endpoint.base_url!r} is not a URL. Write it up to the version, as in http://localhost:8000/v1"
        )
    if importlib.util.find_spec("openai") is None:
        raise UsageError("judge needs the package openai. Install it with: pip install 'grpo-kit[judge]'")
    key = endpoint.key
    import openai

    try:
        with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
            thread.submit(asyncio.run, _probe(endpoint)).result()
    except TimeoutError:
        raise OptionError(
            f"judge: {endpoint.base_url} does not answer completely within {2 * _PROBE:g} s. Mend the server, or "
            "correct base_url."
        ) from None
    except openai.AuthenticationError:
        named = f"the key in {endpoint.api_key_env}" if endpoint.api_key_env else "a request without a key"
        raise OptionError(f"judge: {endpoint.base_url} refuses {named}. Correct the key or the URL.") from None
    except openai.OpenAIError as error:
        refused = refusal(error)
        if isinstance(refused, Redirected):
            raise OptionError(f"judge: {without(key, str(refused))}") from None
        if refused or not isinstance(error, openai.APIConnectionError):
            return  # it answers, and knows no list of models, or has a very long one
        cause = f"{type(error.__cause__).__name__}: {error.__cause__}" if error.__cause__ else str(error)
        raise OptionError(
            f"judge: nothing answers at {endpoint.base_url} ({without(key, cause)}). Start the server, or correct "
            "base_url."
        ) from None


async def _probe(endpoint: Endpoint) -> None:
    async with (
        asyncio.timeout(2 * _PROBE),
        connect(endpoint.base_url, endpoint.key, timeout=_PROBE, retries=1) as client,
    ):
        await client.models.with_raw_response.list()


def without(key: str, text: str) -> str:
    return text if key == _NO_KEY else text.replace(key, "***")
