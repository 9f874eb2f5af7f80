"""Graders behind the wall: is it the text or the machine? Values, wrong answers and failures are told apart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from grpo.envs.graders.remote import PROCESS, Graders, runner
from grpo.plugins.errors import SandboxUnavailable, TransientError

pytestmark = pytest.mark.slow

GUEST = """
from __future__ import annotations

import ctypes, os, sys, time

import tabnanny  # what a library is here


def handle(request):
    kind, value = request
    if kind == "sum":
        return sum(value)
    if kind == "print":
        print("x" * 10_000)
        os.write(2, b"y" * 10_000)
        return 1
    if kind == "crash":
        ctypes.string_at(0)
    if kind == "exit":
        os._exit(0)
    if kind == "leave":
        sys.exit(3)
    if kind == "spin":
        return 9**9**9
    if kind == "memory":
        return len(bytearray(value))
    if kind == "deep":
        return handle((kind, value))
    if kind == "killed":
        os.kill(os.getpid(), 9)
    if kind == "network":
        import socket

        return socket.create_connection(("127.0.0.1", 9), 1)
    if kind == "environment":
        return sorted(os.environ)
    if kind == "write":
        open(value, "w").write("x")
    if kind == "forge":
        for number in range(3, 20):
            try:
                os.write(number, b'{"value": 99}\\n' * 9)
            except OSError:
                pass
        return 0
    if kind == "object":
        return object()
"""
WORKS = [("sum", [1])]


@pytest.fixture(params=["sandbox", "process"])
def graders(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graders:
    import importlib.util

    monkeypatch.setenv("SOME_API_KEY", "secret")
    file = tmp_path / "guest_of_tests.py"
    file.write_text(GUEST)
    spec = importlib.util.spec_from_file_location("guest_of_tests", file)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        run = runner("tabnanny", PROCESS if request.param == "process" else "local")
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    return Graders("tests", module, run, seconds=1.0, memory=2**30)


def test_values_come_back_to_whoever_asked(graders: Graders) -> None:
    with ThreadPoolExecutor(40) as threads:
        replies = list(threads.map(lambda n: graders.ask(("sum", [n, 1]), WORKS), range(100)))
    assert [reply.value for reply in replies] == list(range(1, 101))


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("crash", None, "SIGSEGV"),
        ("exit", None, "ended"),
        ("leave", None, "SystemExit"),
        ("spin", None, "1 s of processor time"),
        ("memory", 10**11, "MemoryError"),
        ("deep", None, "RecursionError"),
        ("object", None, "TypeError"),
    ],
)
def test_a_text_that_a_grader_cannot_stand_has_a_reason(graders: Graders, kind: str, value: object, why: str) -> None:
    requests = [("sum", [1]), (kind, value), ("sum", [2]), (kind, value), ("sum", [3])]
    with ThreadPoolExecutor(5) as threads:
        replies = list(threads.map(lambda each: graders.ask(each, WORKS), requests))
    assert [reply.value for reply in replies] == [1, None, 2, None, 3]
    assert why in replies[1].reason


def test_a_grader_that_does_not_even_work_at_a_known_answer_is_a_failure(graders: Graders) -> None:
    with pytest.raises(TransientError, match="not even at a known answer: SystemExit"):
        graders.ask(("leave", None), [("leave", None)])
    with pytest.raises(TransientError, match="known answer"):
        graders.ask(("spin", None), [("crash", None)])


@pytest.mark.core
def test_who_kills_itself_is_wrong_where_a_kill_from_outside_looks_different(
    graders: Graders, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["graders"] == "sandbox":  # nobody can send it a SIGKILL but the machine
        assert graders.ask(("killed", None), WORKS).value is None
        return
    with pytest.raises(TransientError, match="SIGKILL"):
        graders.ask(("killed", None), WORKS)


def test_what_a_library_prints_is_no_answer(graders: Graders) -> None:
    assert graders.ask(("print", None), WORKS).value == 1


@pytest.mark.core
def test_a_program_that_writes_an_answer_of_its_own_writes_nobody_elses(graders: Graders) -> None:
    requests = [("sum", [n]) if n % 2 else ("forge", None) for n in range(24)]
    with ThreadPoolExecutor(24) as threads:
        replies = list(threads.map(lambda each: graders.ask(each, WORKS, alone=each[0] == "forge"), requests))
    assert [reply.value for reply in replies[1::2]] == list(range(1, 24, 2))


@pytest.mark.core
def test_secrets_and_files_are_out_of_reach(graders: Graders, tmp_path: Path) -> None:
    seen = graders.ask(("environment", None), WORKS).value
    assert "SOME_API_KEY" not in seen
    proof = tmp_path / "proof"
    assert graders.ask(("write", str(proof)), WORKS).value is None
    assert not proof.exists() or proof.read_text() == ""
    assert graders.ask(("network", None), WORKS).value is None


def test_without_a_sandbox_the_user_is_warned_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(spec: str) -> None:
        raise SandboxUnavailable("user namespace: not available")

    monkeypatch.setattr("grpo.envs.graders.remote.pool_of", none_here)
    with pytest.warns(RuntimeWarning, match="can read files and use the network: user namespace"):
        runner("tabnanny")
    with pytest.raises(SandboxUnavailable):
        runner("tabnanny", "local")
