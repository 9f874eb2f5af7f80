"""Loads from the Hugging Face hub: announces it, and gives up retrying after seconds without an answer."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_TRIES = 2
_PATIENCE = 5.0  # seconds for an answer
_REMEMBERED = 60.0  # seconds for which an answer counts


class NotReached(ConnectionError):
    """The hub did not answer, and the cache lacks what was asked for; says what to do."""


@contextmanager
def from_hub(name: str) -> Iterator[None]:
    """Loads in the block from the hub, or from its cache if it does not answer. Raises NotReached if that lacks it."""
    from huggingface_hub import constants

    asked_for = constants.HF_HUB_OFFLINE
    if asked_for:
        why, remedy = "HF_HUB_OFFLINE is set", "Take that variable away"
        _say(f"loading {name} from the cache of the hub ...")
    else:
        why, remedy = f"no answer from {constants.ENDPOINT}", "Check the network"
        _say(f"loading {name} from the hub ...")
        if _answers(constants.ENDPOINT, int(time.monotonic() // _REMEMBERED)):
            yield
            return
        _say(f"{why}: looking for {name} in the cache ...")
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    except Exception as error:
        raise NotReached(
            f"{why}, and there is no complete copy of it in the cache. {remedy}, or name a local file or folder."
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = asked_for


@functools.lru_cache(maxsize=1)
def _answers(endpoint: str, _when: int) -> bool:
    import httpx
    from huggingface_hub import get_session

    for _ in range(_TRIES):
        try:
            get_session().head(endpoint, timeout=_PATIENCE)
        except httpx.TransportError:
            continue
        return True
    return False


@functools.cache
def _say(text: str) -> None:
    if os.environ.get("RANK", "0") == "0" and sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
