"""Plays episodes of a task by agents in sessions, with a gateway that answers every request with a word."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from patience import PATIENCE

from grpo.core.agents.in_session import SessionPrograms
from grpo.core.agents.program import AgentExit
from grpo.core.env.episodes import Episode
from grpo.plugins.agents import Access
from grpo.plugins.host import Host


class Gateway(BaseHTTPRequestHandler):
    """Answers a chat first with a call of the tool bash, which writes 42, and every other request with a word."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"policy")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message: dict[str, Any] = {"role": "assistant", "content": "done"}
        if not any(each["role"] == "assistant" for each in asked["messages"]):
            function = {"name": "bash", "arguments": json.dumps({"command": "echo 42 > answer.txt"})}
            message |= {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
        body = json.dumps({**answer, "usage": dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 1)})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def gateway() -> Iterator[Access]:
    """Yields how programs reach a gateway."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Access(f"http://127.0.0.1:{server.server_port}", "the-key", "policy")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def played(
    agent: str,
    access: Access,
    folder: Path,
    grade: str,
    kill: bool = False,
    session: str = "local",
    seconds: float = PATIENCE,
    hidden: Sequence[str] = (),
) -> AgentExit:
    """Plays an episode of a task by an agent; the grader and the script lie side by side on the host."""
    tasks = folder / "tasks.jsonl"
    tasks.write_text(
        f"{json.dumps({'instruction': 'Write 42 into answer.txt.', 'grader': grade})}\n" * 2, encoding="utf-8"
    )
    host = Host.discover()
    env = host.env(f"shell:{tasks}:session={session}")
    rows = env.rows("train")
    assert rows is not None
    prompt = ({"role": "user", "content": "Write 42 into answer.txt."},)
    episode = Episode(0, prompt, rows[0], None, {"options": {"row": rows[0]}}, env=env.name)  # type: ignore[arg-type]
    left: queue.Queue[AgentExit] = queue.Queue()
    programs = SessionPrograms(host.agent(agent), [env], PATIENCE, hidden)
    assert programs.takes(episode)
    try:
        programs.start(7, episode, access, left.put)
        if kill:
            programs.kill(7)
        return left.get(timeout=seconds)
    finally:
        programs.close()
