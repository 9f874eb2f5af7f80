"""Implements an engine link to a rollout server (core/rollout/server/serve.py).

A server that was restarted holds the weights of its file. `epoch` waits until a server answers, and returns another
number for another incarnation, so that everything is sent and verified anew. Of several processes, one syncs a server;
the others sample on it, naming the incarnation and the sync that the first one tells them of.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

import torch

from grpo.core.rollout.engine.link import GuestLink
from grpo.core.rollout.server import wire
from grpo.core.rollout.server.capabilities import TOKEN, ServerCapabilities, card_from_json, misfits
from grpo.core.rollout.sync.delta import Announced, LastWeights, Sender, whole_of
from grpo.core.rollout.sync.fault import EngineLost, SyncFault
from grpo.core.rollout.sync.group import OpenMeeting, TransferGroup, own_address
from grpo.core.rollout.sync.payload import Adapter
from grpo.core.rollout.types import OnDone, PromptIds, Sampled, SamplingParams, refuse_unfit, runs
from grpo.core.scoring.outcome import explain
from grpo.plugins.errors import RunError, UsageError

LOOK_SECONDS = 10.0  # for an answer to the question what the server is
PAUSE = 0.5  # seconds between two attempts to find it again
DEFAULT_PORTS = {"http": 80, "https": 443}
GONE = (502, 503, 504)  # what a proxy answers in the place of a server that is gone


class ServerLink(GuestLink):
    """A link to a server, which has memory of its own and goes on running for the next run.

    `patience`: seconds to wait for a server that is gone. `warned`: told when it is gone, and when it is back. `last`:
    the weights as they were last sent, shared by all links of a run; None: every tensor is sent whole. `broadcasts`:
    weights go by a group of their own, not by HTTP. Raises UsageError if there is none, or it does not fit the run.
    """

    def __init__(
        self,
        url: str,
        wanted: ServerCapabilities,
        command: str,
        patience: float,
        warned: Callable[[str], None],
        last: LastWeights | None = None,
        broadcasts: bool = False,
    ) -> None:
        self._url = url
        self._wanted = wanted
        self._remedy = f"Start it with: {command}"
        self._patience = patience
        self._warned = warned
        self._sender = Sender(last)
        self._broadcasts = broadcasts
        self._group: TransferGroup | None = None
        self._known = fitting_server_state(url, wanted, command)
        card = card_from_json(self._known)
        self._epoch = 0
        self._doubted = False  # a handing over broke off, and may still be on its way
        self.context = card.context
        self.block = card.block
        self.lora = card.lora_rank is not None

    def epoch(self) -> int:
        """Waits until the server answers; another number: it lost its weights. Raises RunError."""
        state = self._await_state()
        same = all(state[name] == self._known[name] for name in ("incarnation", "handed"))
        if self._doubted or not same:
            wrong = misfits(card_from_json(state), self._wanted)
            if wrong:
                raise RunError(f"the rollout server at {self._url} came back as another: {wrong[0]}. {self._remedy}")
            self._known = state
            self._known["handed"] = self._ask(wire.CLAIM, _plain({}))
            self._doubted = False
            self.forget()
            self._epoch += 1
        return self._epoch

    def put_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> int:
        """Sends weights one tensor at a time, or what changed in it; returns how many bytes that took."""
        if self._broadcasts:
            return self._broadcast(weights)
        sent = 0

        def counted() -> Iterator[bytes]:
            nonlocal sent
            for part in wire.frames(self._sender.items(weights)):
                sent += len(part)
                yield part

        self._hand_over("/weights", counted(), {wire.KEEP: "1"} if self._sender.keeps else {})
        self._sender.arrived()
        return sent

    def forget(self) -> None:
        """Sends everything the next time, to a new group."""
        self._sender.forget()
        if self._group is not None:
            self._group.close()
            self._group = None

    def put_adapter(self, adapter: Adapter) -> None:
        """Sends A and B; the server takes them over in memory, without a file."""
        items = (whole_of(name, tensor) for name, tensor in adapter.tensors.items())
        self._hand_over("/adapter", wire.frames(items), {wire.RANK: str(adapter.rank)})

    def fingerprints(self, seed: int) -> Mapping[str, int]:
        fingerprints: Mapping[str, int] = self._ask("/fingerprints", _plain({"seed": seed}))
        return fingerprints

    def adapter_fingerprints(self, adapter: Adapter, seed: int) -> Mapping[str, int]:
        fingerprints: Mapping[str, int] = self._ask("/adapter_fingerprints", _plain({"seed": seed}))
        return fingerprints

    def reset_prefix_cache(self) -> None:
        self._ask("/reset_prefix_cache", _plain({}))

    def generate(self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None = None) -> list[Sampled]:
        """Samples completions; the seed comes from torch's global generator, so that a run can be repeated."""
        if not prompts:
            return []
        refuse_unfit(prompts, params, self.context)
        unique, copies = runs(prompts)
        body = {
            "prompts": [[list(prompt), n] for prompt, n in zip(unique, copies, strict=True)],
            "params": asdict(replace(params, keys=None, seed=params.seeded())),
        }
        ready: dict[int, Sampled] = {}

        def heard(line: Mapping[str, Any]) -> None:
            done = [wire.sampled_from_json(completion) for completion in line["completions"]]
            ready.update(zip(line["numbers"], done, strict=True))
            if on_done is not None:
                on_done(line["numbers"], done)

        number = self._ask("/generate", _plain(body), heard=heard)
        if not number == len(ready) == len(prompts):
            raise EngineLost(f"the rollout server at {self._url} returned {len(ready)} of {len(prompts)} completions")
        return [ready[number] for number in range(len(prompts))]

    def _broadcast(self, weights: Iterable[tuple[str, torch.Tensor]]) -> int:
        group = self._group or self._joined()
        self._group = None  # unless all goes well: members that are out of step are of no more use
        sent = 0

        def announced() -> Iterator[bytes]:
            nonlocal sent
            for name, tensor in weights:
                yield from wire.frames([Announced(name, tensor.dtype, tuple(tensor.shape))], end=False)
                group.send(tensor)
                sent += tensor.nbytes
            yield from wire.frames([])

        try:
            self._hand_over("/announced", announced(), {})
        except BaseException:
            group.close()
            raise
        self._group = group
        return sent

    def _joined(self) -> TransferGroup:
        card = card_from_json(self._known)
        place = urlsplit(self._url)
        here = own_address(str(place.hostname), place.port or DEFAULT_PORTS[place.scheme])
        gpus = card.device == "cuda" and torch.cuda.is_available()
        opened = OpenMeeting(here, 1 + card.workers, "nccl" if gpus else "gloo")
        with ThreadPoolExecutor(1) as aside:
            answer = aside.submit(self._ask, "/join", _plain(opened.meeting.to_json()))
            try:
                group = opened.join()
            except RuntimeError as error:
                answer.result()  # what the server says of it is nearer to the cause
                raise SyncFault(f"{self._url} did not join the group that weights go by: {error}", []) from error
            answer.result()
        return group

    def handed(self) -> Mapping[str, Any]:
        """Returns the server's address, its incarnation and the number of the last sync."""
        return {"url": self._url, "incarnation": self._known["incarnation"], "handed": self._known["handed"]}

    def follow(self, handed: Sequence[Mapping[str, Any]]) -> None:
        """Samples from now on with what another process sent and verified."""
        (own,) = [item for item in handed if item.get("url") == self._url]
        self._known = {**self._known, **own}

    def _hand_over(self, path: str, body: Iterator[bytes], more: Mapping[str, str]) -> None:
        self._doubted = True
        self._known["handed"] = self._ask(path, body, more)
        self._doubted = False

    def _await_state(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._patience
        waits = False
        while True:
            try:
                state = state_of(self._url)
            except UsageError as error:
                raise RunError(str(error)) from error
            except OSError as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RunError(
                        f"the rollout server at {self._url} is gone ({explain(error)}) and did not come back within "
                        f"{self._patience:g} s. {self._remedy}, and continue with: grpo run --resume"
                    ) from error
                if not waits:
                    self._warned(
                        f"the rollout server at {self._url} does not answer ({explain(error)}). Waiting up to "
                        f"{self._patience:g} s for it. {self._remedy}"
                    )
                waits = True
                time.sleep(min(PAUSE, left))
            else:
                if waits:
                    self._warned(f"the rollout server at {self._url} is back")
                return state

    def _ask(
        self,
        path: str,
        body: bytes | Iterator[bytes],
        more: Mapping[str, str] | None = None,
        heard: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> Any:
        headers = {
            "Content-Type": wire.BYTES,
            wire.INCARNATION: str(self._known["incarnation"]),
            wire.HANDED: str(self._known["handed"]),
            **(more or {}),
        }
        lines = _answer(self._url, path, body, headers)
        while True:
            try:
                last = next(lines)
            except (OSError, http.client.HTTPException) as error:
                raise EngineLost(
                    f"the rollout server at {self._url} was lost in the middle of {path} ({explain(error)}). "
                    f"{self._remedy}, and continue with: grpo run --resume"
                ) from error
            if "result" in last or "error" in last:
                break
            if heard is not None:
                heard(last)
        kind, message = last.get("kind"), last.get("error")
        if kind == "usage":
            raise UsageError(str(message))
        if message is not None:
            raise SyncFault(f"{message} ({self._url}{path})", [])
        return last["result"]


def fitting_server_state(url: str, wanted: ServerCapabilities, command: str) -> dict[str, Any]:
    """Returns the state of a server that fits a run. Raises UsageError."""
    remedy = f"Start one that fits with: {command}"
    try:
        state = state_of(url)
    except OSError as error:
        raise UsageError(f"no rollout server answers at {url} ({explain(error)}). {remedy}") from None
    try:
        wrong = misfits(card_from_json(state), wanted)
    except UsageError as error:
        raise UsageError(f"the server at {url}: {error}. Name another with --server-url, or {remedy}") from None
    if wrong:
        raise UsageError(f"the rollout server at {url} does not fit this run: {'; '.join(wrong[:3])}. {remedy}")
    return state


def state_of(url: str) -> dict[str, Any]:
    """Asks a server what it is and which weights it holds. Raises OSError, UsageError."""
    connection = _connection(url, LOOK_SECONDS)
    try:
        connection.request("GET", _path(url, "/state"), headers=_token())
        response = connection.getresponse()
        text = response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(explain(error)) from None
    finally:
        connection.close()
    if response.status in GONE:
        raise ConnectionError(f"the proxy before it answers {response.status}")
    if response.status == 401:
        raise UsageError(f"the rollout server at {url} wants its token. Set {TOKEN} to what the server was given.")
    refused = None
    try:
        state: dict[str, Any] = json.loads(text)
        if response.status == 200 and {"incarnation", "handed"} <= state.keys():
            return state
        refused = str(state["error"]) if response.status == 403 and "error" in state else None
    except (ValueError, AttributeError):
        pass
    if refused is not None:
        raise UsageError(
            f"the rollout server at {url} refuses: {refused}. With {TOKEN} set for the server and for the run it "
            "answers to any name."
        )
    raise UsageError(f"{url} answers, and not as a server of: grpo serve-rollouts. Name another with --server-url.")


def _answer(url: str, path: str, body: bytes | Iterator[bytes], headers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    connection = _connection(url, wire.SILENCE)
    chunked = not isinstance(body, bytes)
    sent = {**headers, **_token(), **({"Transfer-Encoding": "chunked"} if chunked else {})}
    try:
        try:
            connection.request("POST", _path(url, path), body=body, headers=sent, encode_chunked=chunked)
        except (BrokenPipeError, ConnectionResetError):
            # It stopped listening; it may have said why.
            with suppress(http.client.HTTPException, OSError):
                yield _refusal(connection.getresponse())
                return
            raise
        response = connection.getresponse()
        if response.status != 200:
            yield _refusal(response)
            return
        for line in iter(response.readline, b""):
            if line.strip() and line.endswith(b"\n"):
                yield json.loads(line)
        raise ConnectionError("the answer broke off")
    finally:
        connection.close()


def _refusal(response: http.client.HTTPResponse) -> dict[str, Any]:
    text = response.read()
    try:
        return {"error": f"{response.status}: {json.loads(text)['error']}", "kind": "refused"}
    except (ValueError, TypeError, KeyError):
        raise ConnectionError(f"something in between answers {response.status}") from None


def _connection(url: str, timeout: float) -> http.client.HTTPConnection:
    place = urlsplit(url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    return kind(str(place.hostname), place.port, timeout=timeout)


def _path(url: str, path: str) -> str:
    return urlsplit(url).path.rstrip("/") + path


def _token() -> dict[str, str]:
    token = os.environ.get(TOKEN)
    return {"Authorization": f"Bearer {token}"} if token else {}


def _plain(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()
