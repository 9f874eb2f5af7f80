"""Connects to a judge's server without following redirects, and reads replies up to a limit, uncompressed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MOST_BYTES = 4 * 2**20
"""What a reply may have; a verdict has a few hundred bytes, and reasoning some thousand."""
_PLAIN = ("", "identity")


class Refused(Exception):
    """A reply that is not read."""


class Redirected(Refused):
    """A reply that points to another place."""


def connect(base_url: str, key: str, *, timeout: float, retries: int) -> AsyncOpenAI:
    """Returns a client of a server, whose errors may come from a `Refused`; `timeout` is of each stage of a request."""
    import httpx
    import openai

    class Counted(httpx.AsyncByteStream):
        def __init__(self, body: httpx.AsyncByteStream, here: str) -> None:
            self._body, self._here = body, here

        async def __aiter__(self) -> AsyncIterator[bytes]:
            count = 0
            async for piece in self._body:
                count += len(piece)
                if count > MOST_BYTES:
                    why = f"{_place(self._here)} sends a reply of more than {MOST_BYTES} bytes, which is not a verdict."
                    raise openai.OpenAIError("a reply was refused") from Refused(why)
                yield piece

        async def aclose(self) -> None:
            await self._body.aclose()

    async def look(response: httpx.Response) -> None:
        here = str(response.request.url)
        refused = _fault(here, response.status_code, response.headers)
        if refused:
            # The client does not try again after an error of its own.
            raise openai.OpenAIError("a reply was refused") from refused
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = Counted(response.stream, here)

    http = httpx.AsyncClient(
        follow_redirects=False, event_hooks={"response": [look]}, headers={"Accept-Encoding": "identity"}
    )
    return openai.AsyncOpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=retries, http_client=http)


def refusal(error: BaseException) -> Refused | None:
    """Returns the refusal that an error of the client comes from, or None."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Refused):
        cause = cause.__cause__
    return cause


def _fault(here: str, status: int, headers: Any) -> Refused | None:
    if 300 <= status < 400:
        return Redirected(
            f"{_place(here)} answers with a redirect ({status}) to {_place(here, headers.get('Location', ''))}. No "
            "redirect is followed: the task, the reference and the completion would go there, and its verdict would "
            "count. If that is the server that you mean, name it with base_url=..."
        )
    if headers.get("Content-Encoding", "").strip().lower() not in _PLAIN:
        return Refused(
            f"{_place(here)} sends a compressed reply, which was not asked for and may be of any size. Turn "
            "compression off there, or in the proxy before it."
        )
    return None


def _place(here: str, there: str = "") -> str:
    """Scheme, host and path of a URL, or of one that the other side wrote, in printable ASCII."""
    try:
        parts = urlsplit(urljoin(here, there))
        text = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:
        text = "what is not a URL"
    return ascii(text[:200])[1:-1]
