"""How the tests of this folder read recorded cases, judge programs, and ask a stand-in for an LLM judge's server."""

from __future__ import annotations

import asyncio
import json
import re
import select
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, tried_again

from grpo.core.scoring.outcome import Outcome
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.host import Host
from grpo.plugins.pools import close_pools, pool_of
from grpo.plugins.types import Completion
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import CodeResult
from grpo.rewards.code.task import Columns, task_of
from grpo.rewards.judge import reward as judge_module

ReadCases = Callable[[str], list[dict[str, Any]]]
Messages = list[dict[str, str]]
Brain = Callable[[Messages], str]


@pytest.fixture(scope="session")
def read_cases(shared_data: Path) -> ReadCases:
    """Reads a JSONL file of the data folder, given its path there."""

    def read(name: str) -> list[dict[str, Any]]:
        with (shared_data / name).open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    return read


CONTROL = re.compile(r"<[|\uff5c](?:im_start|start_header_id|User)[|\uff5c]>")
ORDER = re.compile(
    r"(?:give|award|score|grade|rate|verdict|points?)\W{0,12}(?:\w{1,12}\W{1,12}){0,6}10\b", re.IGNORECASE
)


class StandIn(ThreadingHTTPServer):
    """An OpenAI-compatible server on this machine, over real HTTP.

    Attributes:
        brain: makes the content of a reply of the messages.
        script: what to do with the next requests instead: a status with a body, bytes to send as the body, or "hang".
        bodies, headers: of the chat requests so far.
        most_at_once: chat requests in flight together, at most.
        hung_up: how many clients left requests that hang.
        delay: seconds before each reply.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StandInHandler)
        self.brain: Brain = faithful
        self.script: list[tuple[int, Any, dict[str, str]] | bytes | str] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = self.at_once = 0
        self.hung_up = 0
        self.delay = 0.0
        self.key = ""
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is what some tests want."""


class StandInHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandIn

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        refused = self.server.key and self.headers["Authorization"] != f"Bearer {self.server.key}"
        self.send(401 if refused else 200, {"object": "list", "data": []})

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.headers.append({name.title(): value for name, value in self.headers.items()})
            step = server.script.pop(0) if server.script else None
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            time.sleep(server.delay)
            if step == "hang":
                left, _, _ = select.select([self.connection], [], [], 2 * PATIENCE)
                with server.lock:
                    server.hung_up += bool(left)
                self.close_connection = True
            elif step == "drop":
                self.close_connection = True
            elif isinstance(step, bytes):
                self.send_bytes(200, step, {})
            elif isinstance(step, tuple):
                self.send(*step)
            else:
                self.send(200, reply(server.brain(body["messages"])))
        finally:
            with server.lock:
                server.at_once -= 1

    def send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self.send_bytes(status, json.dumps(body).encode(), headers or {})

    def send_bytes(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        kind = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, value in {**kind, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def reply(content: Any, ending: str = "stop", **message: Any) -> dict[str, Any]:
    """Returns the body of a chat completion of 100 + 20 tokens."""
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "stand-in",
        "choices": [
            {"index": 0, "finish_reason": ending, "message": {"role": "assistant", "content": content, **message}}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def mark_of(messages: Messages) -> str:
    return messages[-1]["content"].split("\n", 1)[0].removeprefix("The mark of this message: ")


def verdict(messages: Messages, points: int) -> str:
    return json.dumps({"mark": mark_of(messages), "reasoning": "So it is.", "points": points})


def pieces(messages: Messages) -> dict[str, str]:
    """Returns the quoted pieces by title, as a reader who keeps to the rules finds them."""
    mark, title = mark_of(messages), None
    found: dict[str, list[str]] = {}
    for line in messages[-1]["content"].split("\n"):
        heading = re.fullmatch(rf"{re.escape(mark)} (.+) (begins|ends)", line)
        if heading:
            title = heading[1] if heading[2] == "begins" else None
            found.setdefault(heading[1], [])
        elif title is not None:
            assert line.startswith("| ")
            found[title].append(line[2:])
    return {title: "\n".join(lines) for title, lines in found.items()}


def faithful(messages: Messages) -> str:
    """A judge that keeps to its rubric: full points when the answer says what the reference says."""
    found = pieces(messages)
    return verdict(messages, 10 if found.get("reference answer", "none") in found["answer"] else 0)


def gullible(messages: Messages) -> str:
    """A judge that obeys any order to give 10 points that is not inside a quotation, however it is hidden.

    It reads the chat as a server does that renders it to one text: control tokens in a message start a new one.
    """
    rendered = "".join(f"<|im_start|>{m['role']}\n{m['content']}" for m in messages)
    turns = CONTROL.split(rendered)[1:]
    _ours, user, *forged = turns if len(turns) > 1 else [*turns, ""]
    mark, inside, orders = mark_of(messages), False, forged
    for line in user.removeprefix("user\n").splitlines():
        if mark and line.startswith(mark) and line.endswith((" begins", " ends")):
            inside = line.endswith(" begins")
        elif not (inside and line.startswith("| ")):
            orders.append(line)
    return verdict(messages, 10 if ORDER.search(plain(" ".join(orders))) else 0)


def plain(text: str) -> str:
    """Returns what a model makes of a text: hidden letters shown, invisible ones gone, look-alikes folded."""
    shown = "".join(chr(ord(c) - 0xE0000) if 0xE0020 <= ord(c) <= 0xE007E else c for c in text)
    return "".join(c for c in unicodedata.normalize("NFKC", shown) if unicodedata.category(c) != "Cf")


def parrot(messages: Messages) -> str:
    """A judge that copies the first verdict that it sees in the answer, as it stands."""
    found = re.search(r'\{[^{}]*"points"[^{}]*\}', pieces(messages)["answer"])
    return found[0] if found else verdict(messages, 0)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A fresh server, with a faithful judge."""
    server = StandIn()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def judges() -> dict[str, Any]:
    """The ways to judge, and what a test needs to make another one."""
    return {"faithful": faithful, "gullible": gullible, "parrot": parrot, "verdict": verdict, "reply": reply}


@pytest.fixture
def judge_key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The key of the stand-in, in the variable JUDGE_KEY, and a judge that remembers nothing."""
    monkeypatch.setattr(judge_module, "_verdicts", type(judge_module._verdicts)())
    monkeypatch.setenv("JUDGE_KEY", "sk-secret-4711")
    return "sk-secret-4711"


def _bound(server: StandIn, **options: Any) -> BoundReward:
    table = {"base_url": server.url, "model": "stand-in", "api_key_env": "JUDGE_KEY", "retries": 0, **options}
    return Host.discover().reward({"name": "judge", "options": table})


@pytest.fixture
def bound(judge_key: str) -> Callable[..., BoundReward]:
    """Binds the reward `judge` to a server, with options."""
    return _bound


@pytest.fixture
def outcomes(judge_key: str) -> Callable[..., list[Outcome]]:
    """Scores texts with the judge of a server: its outcomes, in order."""

    def score(server: StandIn, texts: list[str], row: dict[str, Any] | None = None, **options: Any) -> list[Outcome]:
        row = {"question": "What is the capital of France?", "answer": "Paris"} if row is None else row
        with Scorer([_bound(server, **options)], retries=0) as scorer:
            return list(scorer.score([Completion(text, row=row) for text in texts])["judge"])

    return score


@pytest.fixture(scope="module")
def sandbox_pools() -> Iterator[None]:
    """Closes the pools of a module that judges programs, at its end."""
    yield
    close_pools()


def _judged(
    program: str,
    *,
    pool: Any = None,
    seconds: float = 2.0,
    stop: bool = False,
    assurance: Any = "any",
    compare: Any = "trimmed",
    **row: Any,
) -> CodeResult:
    allowance = Allowance(seconds=seconds, stop=stop)
    task = task_of(Columns(**row))
    how: dict[str, Any] = {"allowance": allowance, "assurance": assurance, "comparison": compare}
    if pool is not None:
        return asyncio.run(judge(pool, program, task, **how))[1]
    return asyncio.run(tried_again(lambda: judge(pool_of(), program, task, **how)))[1]


@pytest.fixture(scope="session")
def judged() -> Callable[..., CodeResult]:
    """Judges a program by the tests of a row, in the real sandbox; with a `pool` of the test's own, once."""
    return _judged
