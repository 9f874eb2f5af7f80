"""Encodes the messages between a pool and the zygote of a slot: one packet for each request and answer.

Program, input and output are memory files whose descriptors come along, so the zygote never holds anything of a job.
This module runs outside and inside the sandbox and imports the standard library only.
"""

from __future__ import annotations

import struct
from collections import namedtuple

_REQUEST = struct.Struct("=ddQQQII")
_ANSWER = struct.Struct("=iBBdddQ")

STOP = b"stop"
PACKET = 65536  # bytes of what a sandbox says when it starts, at most
MESSAGE = 256  # bytes of a request or an answer, at most
PATIENCE = 4  # so many times its wall limit a program may take, if others had the processor meanwhile
FILES_SENT = 5  # program, stdin, stdout, stderr, and the channel to a peer

# Why the zygote ended a program.
ENDED_ITSELF, OVER_CPU, OVER_WALL, OVER_OUTPUT, STOPPED, OVER_MEMORY = range(6)
# What the runner notes before a program ends; a program may forge it, and gains nothing but another failure.
NOTED_NOTHING, NOTED_MEMORY, NOTED_COMPILE = range(3)
# What the zygote reports of a program that never began; no note of a program can say so.
NOTED_SETUP = 255


class Request(namedtuple("Request", ("cpu", "wall", "memory", "output", "disk", "processes", "threads"))):
    """One program to run: its limits, in the units of `Limits`."""

    __slots__ = ()

    def packed(self) -> bytes:
        return _REQUEST.pack(*self)

    @classmethod
    def unpacked(cls, packet: bytes) -> Request:
        return cls(*_REQUEST.unpack(packet))


class Answer(namedtuple("Answer", ("status", "ended", "noted", "cpu", "wall", "waited", "peak"))):
    """How one program ended; times in seconds.

    `status`: as `os.waitpid` reports it. `noted`: what the runner noted, or that the program never began. `cpu`:
    processor time of all its processes. `waited`: how much of `wall` another program had the processor that it was
    ready to use; negative when the kernel does not say, or it was not looked at (only late or stopped programs are).
    `peak`: the greatest resident memory of one process, in bytes.
    """

    __slots__ = ()

    def packed(self) -> bytes:
        return _ANSWER.pack(*self)

    @classmethod
    def unpacked(cls, packet: bytes) -> Answer:
        return cls(*_ANSWER.unpack(packet))


def pack_payload(program: bytes, files: list[tuple[str, bytes]]) -> bytes:
    """Returns the bytes of the memory file with the program and its files."""
    parts = [struct.pack("=II", len(program), len(files)), program]
    for name, content in files:
        encoded = name.encode("utf-8", "surrogateescape")
        parts += [struct.pack("=II", len(encoded), len(content)), encoded, content]
    return b"".join(parts)


def unpack_payload(data: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    length, count = struct.unpack_from("=II", data, 0)
    at = 8 + length
    program, files = data[8:at], []
    for _ in range(count):
        name, content = struct.unpack_from("=II", data, at)
        at += 8
        files.append((data[at : at + name].decode("utf-8", "surrogateescape"), data[at + name : at + name + content]))
        at += name + content
    return program, files
