"""Packs jobs and results as bytes, for a pool that runs elsewhere.

A frame is its length, the length of a JSON head, the head, and the blobs whose lengths the head lists. It cannot name a
type or run code, and every length is bounded: a program that broke out may write at the far end.
"""

from __future__ import annotations

import json
import struct
from dataclasses import fields
from operator import attrgetter
from typing import Any, get_args

from grpo.plugins.sandbox_job import Job, JobOutcome, JobResult, Limits

LENGTH = struct.Struct("!I")
MOST = 512 * 2**20
_limits = attrgetter(*(field.name for field in fields(Limits)))
_OUTCOMES = frozenset(get_args(JobOutcome))
_PLAIN = tuple(field.name for field in fields(JobResult) if field.name not in ("stdout", "stderr", "peer"))


def pack_job(number: int, job: Job) -> bytes:
    """Returns the frame of one job; `number` comes back with its result."""
    blobs: list[bytes] = []
    return _packed({"number": number, "job": _job_head(job, blobs)}, blobs)


def unpack_job(frame: bytes) -> tuple[int, Job]:
    """Reads a frame of `pack_job`, without its length."""
    head, blobs = _unpacked(frame)
    return int(head["number"]), _job_of(head["job"], blobs)


def pack_result(number: int, result: JobResult) -> bytes:
    blobs: list[bytes] = []
    return _packed({"number": number, "result": _result_head(result, blobs)}, blobs)


def unpack_result(frame: bytes) -> tuple[int, JobResult]:
    """Reads a frame of `pack_result`, without its length. Raises ValueError if it is not such a frame."""
    try:
        head, blobs = _unpacked(frame)
        return int(head["number"]), _result_of(head["result"], blobs)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError, struct.error) as error:
        raise ValueError(f"not a result: {error!r}") from error


def pack_values(values: dict[str, Any]) -> bytes:
    return _packed(values, [])


def unpack_values(frame: bytes) -> dict[str, Any]:
    """Reads a frame of `pack_values`, without its length. Raises ValueError if it is not such a frame."""
    try:
        return dict(_unpacked(frame)[0])
    except (TypeError, RecursionError, struct.error) as error:
        raise ValueError(f"not a frame: {error!r}") from error


def _job_head(job: Job, blobs: list[bytes]) -> dict[str, Any]:
    blobs += [job.program.encode("utf-8", "surrogatepass"), job.stdin, *job.files.values()]
    return {
        "files": list(job.files),
        "limits": _limits(job.limits),
        "profile": job.profile,
        "peer": None if job.peer is None else _job_head(job.peer, blobs),
    }


def _job_of(head: dict[str, Any], blobs: list[bytes]) -> Job:
    program, stdin = blobs.pop(0), blobs.pop(0)
    files = {name: blobs.pop(0) for name in head["files"]}
    peer = None if head["peer"] is None else _job_of(head["peer"], blobs)
    limits = Limits(*head["limits"])
    return Job(program.decode("utf-8", "surrogatepass"), stdin, files, limits, head["profile"], peer)


def _result_head(result: JobResult, blobs: list[bytes]) -> dict[str, Any]:
    blobs += [result.stdout, result.stderr]
    plain = {name: getattr(result, name) for name in _PLAIN}
    return plain | {"peer": None if result.peer is None else _result_head(result.peer, blobs)}


def _result_of(head: dict[str, Any], blobs: list[bytes]) -> JobResult:
    stdout, stderr = blobs.pop(0), blobs.pop(0)
    if head["outcome"] not in _OUTCOMES:
        raise ValueError(f"no outcome: {head['outcome']!r}")
    return JobResult(
        head["outcome"],
        stdout=stdout,
        stderr=stderr,
        exit_code=_whole(head["exit_code"]),
        signal=_whole(head["signal"]),
        cpu_seconds=float(head["cpu_seconds"]),
        wall_seconds=float(head["wall_seconds"]),
        peak_bytes=_whole(head["peak_bytes"]),
        degraded=tuple(str(name) for name in head["degraded"]),
        reason=str(head["reason"])[:2000],
        waited_seconds=None if head["waited_seconds"] is None else float(head["waited_seconds"]),
        peer=None if head["peer"] is None else _result_of(head["peer"], blobs),
    )


def _whole(value: object) -> int | None:
    if value is None or type(value) is int:
        return value
    raise ValueError(f"no whole number: {value!r}")


def _packed(head: dict[str, Any], blobs: list[bytes]) -> bytes:
    encoded = json.dumps({**head, "lengths": [len(blob) for blob in blobs]}).encode()
    body = b"".join([LENGTH.pack(len(encoded)), encoded, *blobs])
    if len(body) > MOST:
        raise ValueError(f"{len(body)} bytes are more than a frame can hold ({MOST})")
    return LENGTH.pack(len(body)) + body


def _unpacked(frame: bytes) -> tuple[dict[str, Any], list[bytes]]:
    [size] = LENGTH.unpack_from(frame)
    head = json.loads(frame[LENGTH.size : LENGTH.size + size])
    at, blobs = LENGTH.size + size, []
    for length in head["lengths"]:
        if type(length) is not int or not 0 <= length <= len(frame) - at:
            raise ValueError("a blob is longer than its frame")
        blobs.append(frame[at : at + length])
        at += length
    return head, blobs
