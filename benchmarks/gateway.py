"""How long does an agent's call take beside the sampling? Milliseconds of the gateway, the desk and the player.

    python benchmarks/gateway.py [--episodes 1 64] [--bytes 600 3000 30000] [--calls 6] [--json FILE]

Programs in another process play episodes of several calls, each of which goes on from the one before. A sampler answers
at once, so what is left is reading requests, splicing their tokens, rounds, reading answers and sending them. Beside it
stands an application on the same server that sends each body back. CPU time is that of the serving process, which
other work on the machine does not lengthen; the seconds that the player waits for calls made side by side are in the
wall clock alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
ANSWER = '<tool_call>{"name": "bash", "arguments": {"command": "wc -l a.txt"}}</tool_call>'
GROUP = 8  # rollouts of one task
WORDS = "How many lines has the file of this name, and how many of them are empty or hold a comment? "


@dataclass(frozen=True)
class Measured:
    """A row of the table.

    Attributes:
        what: "gateway" or "echo".
        episodes: side by side.
        size: bytes of the first body of an episode.
        calls: of all episodes.
        cpu: milliseconds of the serving process for each call.
        wall: milliseconds of the clock for each call.
    """

    what: str
    episodes: int
    size: int
    calls: int
    cpu: float
    wall: float


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, key: str, body: dict[str, Any]
) -> dict[str, Any]:
    """Sends JSON over a connection that stays open, and returns what is answered."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(data)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + data)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert " 200 " in answer, answer
    length = int(answer.split("content-length:")[1].split("\r\n")[0])
    reply: dict[str, Any] = json.loads(await reader.readexactly(length))
    return reply


async def episode(port: int, path: str, key: str, task: int, size: int, calls: int) -> None:
    """Plays an episode: it does what the policy asks for and goes on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": (f"Task {task}. " + WORDS * (size // len(WORDS) + 1))[: size - 350]}
    ]
    for number in range(calls):
        body = {"model": "policy", "messages": messages, "tools": [TOOL]}
        reply = await post(reader, writer, path, key, body)
        if "choices" in reply:
            message = reply["choices"][0]["message"]
        else:
            call = {"id": f"call_{number}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
            message = {"role": "assistant", "content": "", "tool_calls": [call]}
        messages += [
            message,
            {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": f"{number} a.txt"},
        ]
    writer.close()


def programs(pipe: Connection, port: int, path: str, size: int, calls: int) -> None:
    """Plays episodes whose numbers and keys come over a pipe, and says when each has ended."""

    async def play(number: int, key: str) -> None:
        await episode(port, path, key, number // GROUP, size, calls)
        pipe.send(number)

    async def serve() -> None:
        running = []
        while (asked := await asyncio.to_thread(pipe.recv)) is not None:
            running.append(asyncio.create_task(play(*asked)))
        await asyncio.gather(*running)

    asyncio.run(serve())


class Elsewhere:
    """`Programs` that run in another process (core/rollout/agents/player.py)."""

    def __init__(self, port: int, path: str, size: int, calls: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=programs, args=(theirs, port, path, size, calls))
        self._process.start()
        theirs.close()
        self._told: list[Callable[[Any], None]] = []
        self._thread = threading.Thread(target=self._ends, daemon=True)
        self._thread.start()

    def start(self, episode: Any, access: Any, ended: Callable[[Any], None]) -> int:
        self._told.append(ended)
        self._pipe.send((len(self._told) - 1, access.key))
        return len(self._told) - 1

    def kill(self, number: int) -> None:
        self._process.kill()

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()

    def _ends(self) -> None:
        from grpo.core.agents.program import AgentExit

        try:
            while True:
                self._told[self._pipe.recv()](AgentExit(0, False, 0.0))
        except EOFError:
            return


class Clocks:
    """CPU time of this process and the clock, from a first `start`."""

    def start(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def row(self, what: str, episodes: int, size: int, calls: int) -> Measured:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        number = episodes * calls
        return Measured(what, episodes, size, number, 1e3 * cpu / number, 1e3 * wall / number)


def gateway(episodes: int, size: int, calls: int) -> Measured:
    """Measures the gateway, the desk and the player of a run."""
    from grpo.core.env.episodes import Episode
    from grpo.core.gateway.app import gateway_server
    from grpo.core.policy.embedded import embedded_model_path
    from grpo.core.policy.load import load_tokenizer
    from grpo.core.rollout.agents.desk import AgentDesk, CallLimits
    from grpo.core.rollout.agents.player import AgentLimits, AgentPlayer
    from grpo.core.rollout.agents.splice import Splice
    from grpo.core.rollout.types import Sampled, SamplingParams
    from grpo.plugins.types import Message

    tokenizer = load_tokenizer(str(embedded_model_path()))
    ids = (*tokenizer(ANSWER, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
    sampled = Sampled(tuple(ids), (-0.1,) * len(ids), "stop")

    def sample(prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
        return [sampled] * len(prompts)

    start = Episode(0, (Message(role="user", content=WORDS),), {}, None, env="tasks", group=0)
    desk = AgentDesk("policy", Splice(tokenizer), CallLimits(calls, 256, 256 * calls, None))
    clocks = Clocks()
    with gateway_server(desk) as server:
        elsewhere = Elsewhere(server.port, "/v1/chat/completions", size, calls)
        limits = AgentLimits(seconds=600.0, at_once=episodes)
        player = AgentPlayer(desk, "", elsewhere, limits, tokenizer.eos_token_id)
        params = SamplingParams(max_tokens=256, eos_ids=(2,), pad_id=0, keys=tuple(range(episodes)))
        for measured in (False, True):  # the first time loads what is loaded once
            clocks.start()
            some = 1 if not measured else episodes
            trajectories = player.play([start] * some, [[1]] * some, sample, params)
            assert all(one.completion.info["agent"]["calls"] == calls for one in trajectories)
            assert all(len(one.branches) == 1 for one in trajectories)
        row = clocks.row("gateway", episodes, size, calls)
        elsewhere.close()
    return row


def echo(episodes: int, size: int, calls: int) -> Measured:
    """Measures an application that sends each body back, on the same server."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from grpo.core.gateway.app import LIMITS
    from grpo.core.http.limits import Callers
    from grpo.core.http.serving import HttpServer, bound

    async def back(request: Request) -> Response:
        return Response(await request.body(), media_type="application/json")

    class Access:
        key = "key"

    app = Starlette(routes=[Route("/echo", back, methods=["POST"])])
    clocks = Clocks()
    with HttpServer(app, bound("127.0.0.1", 0), Callers(hosts=None), LIMITS) as server:
        elsewhere = Elsewhere(server.port, "/echo", size, calls)
        for some in (1, episodes):
            clocks.start()
            left = threading.Semaphore(0)
            for _ in range(some):
                elsewhere.start(None, Access(), partial(_over, left))
            for _ in range(some):
                left.acquire()
        row = clocks.row("echo", episodes, size, calls)
        elsewhere.close()
    return row


def _over(left: threading.Semaphore, _: object) -> None:
    left.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--bytes", nargs="+", type=int, default=[600, 3000, 30000])
    parser.add_argument("--calls", type=int, default=6)
    parser.add_argument("--json", help="write the rows here, too")
    options = parser.parse_args()
    rows: list[Measured] = []
    print("| | episodes | first body, kB | calls | CPU, ms a call | clock, ms a call |\n|---|---|---|---|---|---|")
    for episodes in options.episodes:
        for size in options.bytes:
            for measure in (echo, gateway):
                row = measure(episodes, size, options.calls)
                rows.append(row)
                numbers = f"{row.episodes} | {row.size / 1e3:g} | {row.calls} | {row.cpu:.2f} | {row.wall:.2f}"
                print(f"| {row.what} | {numbers} |", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
