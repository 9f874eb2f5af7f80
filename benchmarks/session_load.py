"""Do sessions judge honest episodes rightly under load? Many at once, a quarter hostile, and random kills with SIGKILL.

    python benchmarks/session_load.py [--episodes 512] [--at-once 64] [--session local] [--seed 0] [--json FILE]

Honest episodes write the sum of numbers: with commands, from a server that runs in their session, or with a program
that asks an address outside; a third of them writes a wrong sum on purpose. Hostile ones bomb, flood, fill, kill, leave
daemons and forge the reward. Meanwhile sessions, servers in sessions and the launcher of all sessions are killed. An
episode may fail, which is no score. A score that is not the episode's is wrong. Nothing may be left at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from grpo.plugins.host import Host
from grpo.plugins.pools import close_sessions
from grpo.rewards.sandbox import cgroup

HOSTILE_SHARE = 0.25
WRONG_SHARE = 1 / 3
KILLS = {"session": 0.85, "server": 0.1, "launcher": 0.05}
PAUSE = (0.1, 0.5)  # seconds between kills
OPTIONS = "memory=128,disk=32,processes=64,seconds=3,grade_seconds=60"
MARK = f"load-{secrets.token_hex(6)}"
SERVER = ("python3", "-u", "-m", "http.server", "8000", "--bind", "127.0.0.1")
ASK = (
    "import sys, urllib.request\n"
    "text = urllib.request.urlopen(sys.argv[1], timeout=60).read().decode()\n"
    "open('sum.txt', 'w').write(text)\n"
)
HOSTILE = {
    "fork bomb": "f() { f | f & }; f; sleep 600",
    "memory": "python3 -c 'x = []\nwhile True: x.append(bytearray(b\"x\") * 2**22)'",
    "disk": "cat /dev/zero > big",
    "files": "n=0; while :; do : > f$n; n=$((n + 1)); done",
    "flood": "cat /dev/zero",
    "killing": "kill -9 -1",
    "daemon": f"(setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' {MARK} &) ; sleep 0.2",
    "forged": "mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo 'exit 0' > /tests/grade.sh",
    "programs": "for p in sh cat test; do echo 'exit 0' > $p; chmod 755 $p; cp $p ~/; done; echo PATH=. > ~/.profile",
}


class Gateway(BaseHTTPRequestHandler):
    """Answers the number in the path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.strip("/").encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def play(env: Any, row: Mapping[str, Any], gateway: int) -> float:
    """Plays one episode; returns its reward. Raises what a session that is gone raises."""
    env.reset(options={"row": row})
    if row["kind"] in HOSTILE:
        env.bash(HOSTILE[row["kind"]])
    elif row["kind"] == "server":
        server = env.session.start(SERVER)
        try:
            server.stdout.read(7)  # "Serving": it listens
            with urllib.request.urlopen(f"http://{env.session.port(8000)}/numbers.txt", timeout=60) as answer:
                numbers = answer.read().split()
            env.bash(f"echo {sum(map(int, numbers)) + row['error']} > sum.txt")
        finally:
            server.close()
    elif row["kind"] == "program":
        session = env.open_session(reach={8123: f"127.0.0.1:{gateway}"})
        program = session.start(["python3", "-c", ASK, f"http://127.0.0.1:8123/{row['total'] + row['error']}"])
        program.stdin.close()
        code = program.wait(120.0)
        program.close()
        if code != 0:
            raise OSError("its way to the policy is gone")
    else:
        env.bash("cat numbers.txt")
        env.bash(f"echo {row['total'] + row['error']} > sum.txt")
    return float(env.step("Done.")[1])


def rows_of(count: int, chance: random.Random) -> list[dict[str, Any]]:
    """Returns tasks, a part of them for hostile policies."""
    rows = []
    for number in range(count):
        numbers = [chance.randrange(1000) for _ in range(3)]
        hostile = chance.random() < HOSTILE_SHARE
        rows.append(
            {
                "name": f"sum {number}",
                "instruction": "Write the sum of numbers.txt into sum.txt.",
                "files": {"numbers.txt": "".join(f"{each}\n" for each in numbers)},
                "grader": f'test "$(cat sum.txt)" = {sum(numbers)}\n',
                "kind": chance.choice([*HOSTILE] if hostile else ["commands", "server", "program"]),
                "total": sum(numbers),
                "error": int(chance.random() < WRONG_SHARE),
            }
        )
    return rows


def below(root: int, deepest: int = 1000) -> dict[int, int]:
    """Returns the processes below one, with how deep they are."""
    depths = {root: 0}
    waiting = [root]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError):  # it has ended
            for task in Path(f"/proc/{process}/task").iterdir():
                for child in map(int, (task / "children").read_text().split()):
                    depths[child] = depths[process] + 1
                    if depths[child] < deepest:
                        waiting.append(child)
    del depths[root]
    return depths


def words(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


class Trouble:
    """Kills at random what serves the episodes, and measures them meanwhile."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._end = chance, threading.Event()
        self.kills: Counter[str] = Counter()
        self.most_memory = self.most_resident = self.most_sessions = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Trouble:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._chance.uniform(*PAUSE)):
            self.measure()
            kind = self._chance.choices([*KILLS], weights=[*KILLS.values()])[0]
            depths = below(os.getpid(), 4)
            launchers = [each for each in depths if depths[each] == 1 and "session.launcher" in words(each)]
            victims = {
                "launcher": launchers,
                "session": [each for each, depth in depths.items() if depth in (2, 3)],  # a keeper or process 1
                "server": [each for each in depths if "http.server" in words(each)],
            }[kind]
            if victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._chance.choice(sorted(victims)), signal.SIGKILL)
                    self.kills[kind] += 1

    def measure(self) -> None:
        groups = groups_of_this_process()
        used = 0
        for group in groups:
            for name in ("memory.usage_in_bytes", "memory.current"):
                with contextlib.suppress(OSError):
                    used += int((group / name).read_text())
        self.most_memory = max(self.most_memory, used)
        self.most_sessions = max(self.most_sessions, len(groups))
        self.most_resident = max(self.most_resident, resident())


def groups_of_this_process() -> list[Path]:
    folder = cgroup.places().get("memory")
    return [*Path(folder).glob(f"grpo-sandbox-{os.getpid()}-*")] if folder else []


def resident() -> int:
    """Returns the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held() -> dict[str, set[str]]:
    """Returns what a leak would add to."""
    numbers = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    marked = {str(process) for process in numbers if MARK in words(process)}
    return {
        "processes": {str(each) for each in below(os.getpid())} | marked,
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "groups": {group.name for group in groups_of_this_process()},
        "files": {path.name for path in Path(tempfile.gettempdir()).glob("grpo-ports-*")},
        "descriptors": {str(number) for number in range(len([*Path("/proc/self/fd").iterdir()]))},
    }


@contextlib.contextmanager
def gateway() -> Iterator[int]:
    server = Server(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def loaded(spec: str, episodes: int, at_once: int, seed: int) -> dict[str, Any]:
    """Plays episodes under load; returns the figures."""
    chance = random.Random(seed)
    rows = rows_of(episodes, chance)
    waiting: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    for row in rows:
        waiting.put(row)
    counts: dict[str, Counter[str]] = {"honest": Counter(), "hostile": Counter()}
    wrong: list[str] = []
    reasons: Counter[str] = Counter()

    def serve(bound: Any, port: int) -> None:
        while True:
            try:
                row = waiting.get_nowait()
            except queue.Empty:
                return
            honest = row["kind"] not in HOSTILE
            env = bound.make()
            try:
                reward = play(env, row, port)
            except Exception as error:
                counts["honest" if honest else "hostile"]["failed"] += 1
                reasons[f"{type(error).__name__}: {error}"[:80]] += 1
                continue
            finally:
                env.close()
            right = reward == float(honest and not row["error"])
            counts["honest" if honest else "hostile"]["right" if right else "wrong"] += 1
            if not right:
                wrong.append(f"{row['kind']}, error {row['error']}: {reward}")

    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder, "tasks.jsonl")
        tasks.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        bound = Host.discover().env(f"shell:{tasks}:session={spec},{OPTIONS}")
        bound.make().close()
        close_sessions()
        before, began, first = held(), time.monotonic(), resident()
        bound.make().close()
        with gateway() as port, Trouble(chance) as trouble:
            threads = [threading.Thread(target=serve, args=[bound, port]) for _ in range(at_once)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        seconds = time.monotonic() - began
        close_sessions()
        after = settled(before)
    return {
        "session": spec,
        "episodes": episodes,
        "at once": at_once,
        "seconds": round(seconds, 1),
        **{who: dict(count) for who, count in counts.items()},
        "wrong": wrong,
        "kills": dict(trouble.kills),
        "failures": dict(reasons.most_common()),
        "sessions at once": trouble.most_sessions,
        "memory of all sessions": trouble.most_memory,
        "growth of this process": trouble.most_resident - first,
        "left": {kind: sorted(after[kind] - before[kind]) for kind in before if after[kind] - before[kind]},
    }


def settled(before: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Returns what is held when nothing is left of the load, or after half a minute; other programs come and go."""
    end = time.monotonic() + 30.0
    while any((after := held())[kind] - before[kind] for kind in before) and time.monotonic() < end:
        time.sleep(0.5)
    return after


def table(figures: Mapping[str, Any]) -> Sequence[str]:
    lines = [f"{figures['session']}: {figures['episodes']} episodes, {figures['at once']} at once"]
    for name, value in figures.items():
        if name not in ("session", "episodes", "at once"):
            size = name.startswith(("memory", "growth"))
            lines.append(f"  {name}: {f'{value / 2**20:.0f} MiB' if size else value}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--session", default="local")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures = loaded(given.session, given.episodes, given.at_once, given.seed)
    print("\n".join(table(figures)))
    if given.json is not None:
        given.json.write_text(json.dumps(figures), encoding="utf-8")
    sys.exit(bool(figures["wrong"] or figures["left"]))


if __name__ == "__main__":
    main()
