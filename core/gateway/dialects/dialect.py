"""Defines what the gateway needs of the module of an API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from grpo.core.gateway.conversation import Ask, Refused, Reply


class Dialect(Protocol):
    """An API; each is a module with these functions."""

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Ask:
        """Reads a request. Raises Refused: it is malformed, or asks for what the policy cannot do."""
        ...

    def whole(self, ask: Ask, replies: Sequence[Reply]) -> Mapping[str, Any]:
        """Returns the JSON of an answer that is not streamed."""
        ...

    def events(self, ask: Ask, replies: Sequence[Reply]) -> bytes:
        """Returns all server-sent events of an answer."""
        ...

    def error(self, refused: Refused) -> Mapping[str, Any]:
        """Returns the JSON of an error."""
        ...

    def error_events(self, refused: Refused) -> bytes:
        """Returns the events that end a stream with an error."""
        ...
