"""Defines what a rollout server and its client agree on: paths, headers, sizes of requests, completions as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo.core.http.limits import Limits
from grpo.core.rollout.types import Sampled

BYTES = "application/octet-stream"  # no web page can send it to another site without asking first
INCARNATION = "Grpo-Incarnation"  # the header that names the start of a server whose weights the caller means
HANDED = "Grpo-Handed"  # the header that names the handing over that the caller means
KEEP = "Grpo-Keep"  # the header that asks for a copy of the weights, to be changed by the next ones
RANK = "Grpo-Rank"  # the header that names the rank of an adapter
CLAIM = "/claim"
SILENCE = 60.0  # seconds without a byte after which either side gives the other up
SMALL = 2**16  # bytes of a body that names a few things
LARGEST_BODY = {  # bytes by path; None: frames of tensors, which are read while the engine takes them
    "/claim": SMALL,
    "/join": SMALL,
    "/generate": 2**28,
    "/fingerprints": SMALL,
    "/adapter_fingerprints": SMALL,
    "/reset_prefix_cache": SMALL,
    "/weights": None,
    "/announced": None,
    "/adapter": None,
}
LIMITS = Limits(body_bytes=SMALL, body_bytes_of=LARGEST_BODY, silence=SILENCE)


def sampled_to_json(sampled: Sampled) -> list[Any]:
    return [sampled.token_ids, sampled.logprobs, sampled.finish_reason, sampled.most_probable]


def sampled_from_json(values: Sequence[Any]) -> Sampled:
    """Returns a completion as it was before it was written as JSON."""
    ids, logprobs, reason, others = values
    others = tuple(tuple((token, logprob) for token, logprob in step) for step in others)
    return Sampled(tuple(ids), tuple(logprobs), reason, others)
