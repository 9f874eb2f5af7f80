"""The server and its client without vLLM: weights arrive whole, and a server that was restarted is never trusted."""

from __future__ import annotations

import copy
import http.client
import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command import environment_with
from patience import PATIENCE, wait_for
from table_server import CARD, COMMAND, PARAMS, WEIGHTS, Running, TableEngine

from grpo.core.rollout.server.capabilities import TOKEN
from grpo.core.rollout.server.client import ServerLink, fitting_server_state, state_of
from grpo.core.rollout.server.serve import RolloutServer
from grpo.core.rollout.server.wire import BYTES, Unframed, frames
from grpo.core.rollout.sync import group
from grpo.core.rollout.sync.delta import Announced, HeldWeights, LastWeights, whole_of
from grpo.core.rollout.sync.fault import EngineLost, SyncFault
from grpo.core.rollout.sync.group import OpenMeeting, TransferGroup
from grpo.core.rollout.sync.payload import Adapter, fingerprints
from grpo.core.rollout.types import Sampled
from grpo.plugins.errors import RunError, UsageError

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
SHARED = (HERE, HERE.parents[2] / "support")
"""The folders of what several test modules share."""


@pytest.fixture
def running() -> Iterator[list[Running]]:
    """A list of servers; the last one runs, and is stopped at the end."""
    servers = [Running()]
    yield servers
    servers[-1].stop()


def link_to(url: str, patience: float = PATIENCE, warned: Any = None) -> ServerLink:
    return ServerLink(url, replace(CARD, raw_logprobs=None), COMMAND, patience, warned or (lambda text: None))


@pytest.mark.core
def test_weights_and_adapters_arrive_bit_for_bit(running: list[Running]) -> None:
    link, engine = link_to(running[0].url), running[0].engine
    link.put_weights(WEIGHTS.items())
    assert all(torch.equal(engine.weights[name], tensor) for name, tensor in WEIGHTS.items())
    assert engine.weights["b"].dtype == torch.bfloat16
    assert link.fingerprints(3) == fingerprints(WEIGHTS, 3)
    name = "base_model.model.q_proj.lora_{}.weight"
    adapter = Adapter(2, {name.format("A"): torch.randn(2, 4), name.format("B"): torch.randn(4, 2)})
    link.put_adapter(adapter)
    assert link.adapter_fingerprints(adapter, 5) == fingerprints(adapter.tensors, 5)
    link.reset_prefix_cache()
    assert engine.resets == 1
    assert (link.context, link.block, link.lora) == (64, 16, True)


@pytest.mark.core
def test_completions_come_back_whole_and_a_seed_repeats_them(running: list[Running]) -> None:
    link = link_to(running[0].url)
    link.put_weights({"a": torch.tensor([0.1])}.items())
    prompts = [[1, 2], [1, 2], [3]]
    found = []
    for _ in range(2):
        torch.manual_seed(4)
        found.append(link.generate(prompts, PARAMS))
    assert found[0] == found[1]
    assert found[0] != link.generate(prompts, PARAMS)
    assert [len(one.token_ids) for one in found[0]] == [4, 4, 4]
    assert found[0][0].logprobs == (float(torch.tensor([0.1]).sum()),) * 4, "no digit is lost on the way"
    assert found[0][0].finish_reason == "length"
    assert link.generate([], PARAMS) == []
    with pytest.raises(UsageError, match="do not fit"):
        link.generate([[1] * 61], PARAMS)


def test_completions_are_told_as_they_end(running: list[Running]) -> None:
    link = link_to(running[0].url)
    told: list[tuple[int, Sampled]] = []
    heard = threading.Semaphore(0)
    each: list[bool] = []
    running[0].engine.after_each = lambda: each.append(heard.acquire(timeout=60))  # it goes on when this one was heard

    def on_done(numbers: Sequence[int], done: Sequence[Sampled]) -> None:
        told.extend(zip(numbers, done, strict=True))
        heard.release()

    found = link.generate([[1], [2], [3]], PARAMS, on_done)
    assert each == [True] * 3, "the first is not held back until the last is there"
    assert [number for number, _ in told] == [2, 1, 0]
    assert [one for _, one in reversed(told)] == found


def test_weights_are_streamed_and_never_all_there_at_once(running: list[Running]) -> None:
    size, number = 2**21, 12  # 8 MiB each, more than sockets hold
    ahead: list[int] = []
    taken = [0]
    engine = running[0].engine

    def take(weights: Any) -> None:
        for _ in weights:
            taken[0] += 1

    engine.put_weights = take  # type: ignore[method-assign]

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        for i in range(number):
            ahead.append(i - taken[0])
            yield f"layer.{i}", torch.full((size,), float(i))

    link_to(running[0].url).put_weights(stream())
    assert taken[0] == number
    assert max(ahead) <= 2, ahead


@pytest.mark.core
def test_a_restarted_server_gets_a_new_epoch_and_serves_nothing_before(running: list[Running]) -> None:
    link = link_to(running[0].url)
    link.put_weights(WEIGHTS.items())
    before = link.epoch()
    running.append(running[0].restarted())
    with pytest.raises(SyncFault, match="was restarted"):
        link.generate([[1]], PARAMS)
    with pytest.raises(SyncFault, match="was restarted"):
        link.put_adapter(Adapter(1, {}))
    assert link.epoch() != before
    link.put_weights(WEIGHTS.items())
    assert link.epoch() == before + 1
    assert len(link.generate([[1]], PARAMS)) == 1


@pytest.mark.core
def test_weights_of_another_run_are_noticed(running: list[Running]) -> None:
    mine, other = link_to(running[0].url), link_to(running[0].url)
    mine.put_weights(WEIGHTS.items())
    before = mine.epoch()
    assert other.epoch() == 1
    other.put_weights({"a": torch.ones(2, 2)}.items())
    with pytest.raises(SyncFault, match="by another run; each run needs a server of its own"):
        mine.generate([[1]], PARAMS)
    assert mine.epoch() != before


@pytest.mark.core
def test_a_sync_that_breaks_off_leaves_weights_that_nobody_takes_for_whole(running: list[Running]) -> None:
    def half() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", WEIGHTS["a"]
        raise KeyError("the trainer failed")

    link = link_to(running[0].url)
    link.put_weights(WEIGHTS.items())
    before = link.epoch()
    with pytest.raises(KeyError):
        link.put_weights(half())
    assert link.epoch() != before
    link.put_weights(WEIGHTS.items())
    assert link.fingerprints(1) == fingerprints(WEIGHTS, 1)


@pytest.mark.core
def test_only_what_changed_travels_until_something_is_in_doubt(running: list[Running]) -> None:
    last, weights = LastWeights(), {"a": torch.randn(50, 40), "tied": torch.randn(2, 3)}
    links = [ServerLink(running[0].url, CARD, COMMAND, 5.0, print, last)]
    whole = links[0].put_weights(weights.items())
    sizes = []

    def moved() -> int:
        weights["a"][3, 7] += 1.0
        size = links[-1].put_weights(weights.items())
        assert torch.equal(running[-1].engine.weights["a"], weights["a"])
        assert links[-1].fingerprints(4) == fingerprints(weights, 4)
        return size

    sizes += [moved(), moved()]
    links[-1].forget()
    sizes += [moved(), moved()]
    running.append(running[0].restarted())
    links[-1].epoch()
    sizes += [moved(), moved()]
    links.append(ServerLink(running[-1].url, CARD, COMMAND, 5.0, print, last))
    links[-1].epoch()
    sizes += [moved(), moved()]
    small = [size < whole / 8 for size in sizes]
    assert small == [True, True, False, True, False, True, False, True]
    with pytest.raises(SyncFault, match="by another run"):
        links[0].put_weights(weights.items())
    links[0].epoch()
    weights["a"] += 1.0
    assert links[0].put_weights(weights.items()) > whole / 2, "what another run left there is nothing to build on"


@pytest.mark.core
def test_changes_for_a_server_that_dropped_its_copy_are_a_fault_and_everything_follows(running: list[Running]) -> None:
    weights = {"a": torch.randn(50, 40)}
    link = ServerLink(running[0].url, CARD, COMMAND, 5.0, print, LastWeights())
    whole = link.put_weights(weights.items())
    running[0].server._held = HeldWeights()
    weights["a"][0] += 1.0
    with pytest.raises(SyncFault, match="a arrived as what changed in weights that are not held here"):
        link.put_weights(weights.items())
    link.epoch()
    assert link.put_weights(weights.items()) == whole
    assert torch.equal(running[0].engine.weights["a"], weights["a"])


ALL_KINDS = {
    "half": torch.randn(30, 4).bfloat16(),
    "turned": torch.randn(6, 5).T,
    "odd": torch.tensor([float("nan"), -0.0, float("-inf")]),
    "scalar": torch.tensor(3.0),
    "empty": torch.empty(0, 4),
    "large": torch.randn(1000, 1000),
}


def broadcasting(url: str) -> ServerLink:
    return ServerLink(url, CARD, COMMAND, 5.0, print, broadcasts=True)


def test_weights_go_by_a_group_that_server_and_trainer_meet_in(running: list[Running]) -> None:
    link = broadcasting(running[0].url)
    for _ in range(2):
        assert link.put_weights(ALL_KINDS.items()) == sum(tensor.nbytes for tensor in ALL_KINDS.values())
        found = running[0].engine.weights
        assert list(found) == list(ALL_KINDS)
        for name, tensor in ALL_KINDS.items():
            assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert link.fingerprints(3) == fingerprints(ALL_KINDS, 3)
    link.forget()
    link.put_weights(WEIGHTS.items())
    assert link.fingerprints(4) == fingerprints(WEIGHTS, 4)


def test_a_group_that_lost_a_member_is_a_fault_and_another_one_is_made(running: list[Running]) -> None:
    link = broadcasting(running[0].url)
    link.put_weights(WEIGHTS.items())

    def half() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", WEIGHTS["a"]
        raise KeyError("the trainer failed")

    with pytest.raises(KeyError):
        link.put_weights(half())
    link.epoch()
    link.put_weights(WEIGHTS.items())
    assert link.fingerprints(5) == fingerprints(WEIGHTS, 5)
    assert running[0].engine.group is not None
    running[0].engine.group.close()
    with pytest.raises((SyncFault, RuntimeError)):
        link.put_weights(WEIGHTS.items())
    link.epoch()
    link.put_weights(WEIGHTS.items())
    running.append(running[0].restarted())
    link.epoch()
    link.put_weights(WEIGHTS.items())
    assert link.fingerprints(6) == fingerprints(WEIGHTS, 6)


def test_only_who_was_told_the_key_finds_the_group(running: list[Running]) -> None:
    opened = OpenMeeting("127.0.0.1", 2, "gloo")
    stranger = replace(opened.meeting, key="guessed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "SECONDS", 1.0)
        with pytest.raises(RuntimeError):
            TransferGroup(stranger, 1)
    found: list[torch.Tensor] = []

    def other() -> None:
        found.append(TransferGroup(opened.meeting, 1).receive(torch.float32, (2,)))

    thread = threading.Thread(target=other)
    thread.start()
    opened.join().send(torch.tensor([1.0, 2.0]))
    thread.join()
    assert found[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("path", ["/announced", "/weights"])
def test_announcements_and_tensors_are_not_taken_for_each_other(running: list[Running], path: str) -> None:
    link = link_to(running[0].url)
    one: Any = Announced("a", torch.float32, (2,)) if path == "/weights" else whole_of("a", torch.ones(2))
    with pytest.raises(SyncFault, match=r"ConnectionError: a (was announced|arrived among)"):
        link._hand_over(path, frames([one]), {})


@pytest.mark.parametrize("shape", [[-1], [2**40], ["x"]])
def test_a_tensor_that_cannot_be_is_not_announced(shape: Any) -> None:
    data = b"".join(frames([Announced("a", torch.float32, tuple(shape))]))
    with pytest.raises(ConnectionError, match="arrived broken"):
        list(Unframed(io.BytesIO(data)).announced())


def test_a_handing_over_that_arrives_late_is_refused(running: list[Running]) -> None:
    """The caller gave it up and handed everything over anew; only then it begins."""
    link = link_to(running[0].url)
    link.put_weights(WEIGHTS.items())
    late = copy.copy(link)
    late._known = dict(link._known)
    link._doubted = True
    link.epoch()
    link.put_weights(WEIGHTS.items())
    with pytest.raises(SyncFault, match="by another run"):
        late.put_weights({"a": torch.zeros(4, 4)}.items())
    assert link.fingerprints(2) == fingerprints(WEIGHTS, 2)


def test_what_fails_in_the_engine_is_told_even_while_weights_are_on_their_way(running: list[Running]) -> None:
    def refuse(weights: Any) -> None:
        next(iter(weights))
        raise RuntimeError("no such parameter")

    running[0].engine.put_weights = refuse  # type: ignore[method-assign]
    large = ((f"layer.{i}", torch.full((2**20,), float(i))) for i in range(8))
    with pytest.raises(SyncFault, match=r"RuntimeError: no such parameter \(http.*/weights\)"):
        link_to(running[0].url).put_weights(large)


def test_a_server_that_is_gone_is_waited_for(running: list[Running]) -> None:
    warnings: list[str] = []
    link = link_to(running[0].url, patience=PATIENCE, warned=warnings.append)
    running[0].stop()
    back = threading.Timer(0.7, lambda: running.append(Running(running[0].server.port)))
    back.start()
    assert link.epoch() == 1
    back.join()
    assert "does not answer" in warnings[0]
    assert COMMAND in warnings[0]
    assert "is back" in warnings[1]


def test_a_server_that_stays_away_ends_the_run_with_what_to_do(running: list[Running]) -> None:
    link = link_to(running[0].url, patience=0.2)
    port = running[0].server.port
    running[0].stop()
    with pytest.raises(RunError, match=rf"did not come back within 0\.2 s\. Start it with: {COMMAND}, and continue"):
        link.epoch()
    with pytest.raises(EngineLost, match=r"lost in the middle of /generate .*grpo run --resume"):
        link.generate([[1]], PARAMS)
    running.append(Running(port))


def test_a_server_that_comes_back_as_another_ends_the_run(running: list[Running]) -> None:
    link = link_to(running[0].url)
    running.append(running[0].restarted(lora_rank=4))
    with pytest.raises(RunError, match="came back as another: it serves adapters up to rank 4, the run's has 8"):
        link.epoch()


def answers(url: str) -> bool:
    try:
        state_of(url)
    except OSError:
        return False
    return True


@pytest.mark.core
def test_a_server_that_is_killed_while_it_samples_is_a_fault_of_the_engine(tmp_path: Path) -> None:
    mark = tmp_path / "samples"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = environment_with(*SHARED)
    with subprocess.Popen([sys.executable, __file__, str(port), str(mark)], env=shared) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            assert wait_for(lambda: answers(url))
            link = link_to(url)
            link.put_weights(WEIGHTS.items())
            threading.Thread(target=lambda: wait_for(mark.exists) and process.kill(), daemon=True).start()
            with pytest.raises(EngineLost, match="lost in the middle of /generate"):
                link.generate([[1]], PARAMS)
        finally:
            process.kill()


def test_the_state_is_told_while_the_engine_works(running: list[Running]) -> None:
    link = link_to(running[0].url)
    works, asked = threading.Event(), threading.Event()

    def work() -> None:
        works.set()
        assert asked.wait(60)

    running[0].engine.before = work
    sampling = threading.Thread(target=link.generate, args=([[1]], PARAMS))
    sampling.start()
    assert works.wait(60)
    state_of(running[0].url)
    assert sampling.is_alive()
    asked.set()
    sampling.join()


@pytest.mark.core
def test_nobody_is_served_without_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = Running(token="secret")
    try:
        monkeypatch.delenv(TOKEN, raising=False)
        with pytest.raises(UsageError, match=f"wants its token. Set {TOKEN}"):
            link_to(guarded.url)
        assert post(guarded.url, "/weights", {"Authorization": "Bearer wrong"}) == 401
        assert post(guarded.url, "/generate", {}) == 401
        assert guarded.server.handed == 0
        monkeypatch.setenv(TOKEN, "secret")
        link_to(guarded.url).put_weights(WEIGHTS.items())
    finally:
        guarded.stop()


def post(url: str, path: str, headers: dict[str, str], body: bytes = b"{}") -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    connection.request("POST", path, body=body, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_what_is_no_call_is_refused_and_does_not_stop_the_server(running: list[Running]) -> None:
    url = running[0].url
    named = {"Content-Type": BYTES, "Grpo-Incarnation": running[0].server.incarnation, "Grpo-Handed": "0"}
    assert post(url, "/weights", {"Content-Type": "text/plain"}) == 415, "what a web page may send unasked"
    assert post(url, "/weights", {"Content-Type": BYTES}) == 400
    assert post(url, "/generate", named, b"no json") == 400
    assert post(url, "/join", named, b"[]") == 400
    assert post(url, "/claim", named, b"[" * 60_000) == 400
    assert post(url, "/generate", {**named, "Content-Length": str(2**40)}) == 413
    assert post(url, "/run", named) == 404
    with pytest.raises(SyncFault, match="KeyError"):
        link_to(url)._ask("/generate", json.dumps({"prompts": []}).encode())
    assert running[0].server.handed == 0
    assert link_to(url).epoch() == 0


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"status": "up"}', "answers, and not as a server of: grpo serve-rollouts"),
        (b'HTTP/1.1 403 Forbidden\r\n\r\n{"error": "this server has no token"}', "refuses: this server has no token"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n<html>", "answers, and not as a server of: grpo serve-rollouts"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "no rollout server answers"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", r"no rollout server answers .* the proxy before it answers 502"),
    ],
)
def test_what_is_no_such_server_is_refused_by_name(reply: bytes, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(UsageError, match=what):
            fitting_server_state(url, CARD, COMMAND)
        answering.join()


def test_no_server_is_an_error_with_the_command_that_starts_one() -> None:
    with pytest.raises(UsageError, match=rf"no rollout server answers at .*Start one that fits with: {COMMAND}"):
        fitting_server_state("http://127.0.0.1:9", CARD, COMMAND)


if __name__ == "__main__":  # what the test of the killed server starts

    def samples() -> None:
        Path(sys.argv[2]).touch()
        threading.Event().wait(2 * PATIENCE)

    slow = TableEngine()
    slow.before = samples
    RolloutServer(("127.0.0.1", int(sys.argv[1])), None).serve(slow, CARD)


def test_a_signal_that_another_thread_was_given_ends_the_server_too() -> None:
    program = """
import signal, threading
from patience import wait_for
from table_server import CARD, TableEngine
from test_serve import answers
from grpo.core.rollout.server.serve import RolloutServer
server = RolloutServer(("127.0.0.1", 0), None)
signal.signal(signal.SIGTERM, lambda number, frame: server.stop())
def give() -> None:
    assert wait_for(lambda: answers(f"http://127.0.0.1:{server.port}"))
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
threading.Thread(target=give).start()
server.serve(TableEngine(), CARD)
"""
    environment = environment_with(*SHARED, OMP_NUM_THREADS="1")
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=300, check=False).returncode == 0
