"""A rollout server in this process, whose engine is a table of what it was handed: no model, no vLLM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from grpo.core.rollout.server.capabilities import ServerCapabilities
from grpo.core.rollout.server.client import state_of
from grpo.core.rollout.server.serve import RolloutServer
from grpo.core.rollout.sync.delta import Announced
from grpo.core.rollout.sync.group import Meeting, TransferGroup
from grpo.core.rollout.sync.payload import Adapter, fingerprints
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams, refuse_unfit
from grpo.plugins.errors import UsageError

PARAMS = SamplingParams(max_tokens=4, eos_ids=(2,), pad_id=0)
WEIGHTS = {"a": torch.full((4, 4), 0.5), "b": torch.tensor([1.0, 2.0], dtype=torch.bfloat16)}
COMMAND = "grpo serve-rollouts --context 64"
CARD = ServerCapabilities(
    model="a table",
    traits={"vocab_size": 50},
    tokenizer=7,
    dtype="float32",
    context=64,
    raw_logprobs=False,
    lora_rank=8,
    lora_modules=("k_proj", "q_proj"),
    block=16,
)


class TableEngine:
    """Keeps what it is handed; a completion is random tokens, and its log-probabilities are the sum of all weights."""

    def __init__(self) -> None:
        self.context, self.block, self.lora = CARD.context, CARD.block, True
        self.weights: dict[str, torch.Tensor] = {}
        self.adapter: dict[str, torch.Tensor] = {}
        self.resets = 0
        self.group: TransferGroup | None = None
        self.before: Callable[[], object] = lambda: None  # called before rollouts are sampled
        self.after_each: Callable[[], object] = lambda: None  # called when one was told

    def epoch(self) -> int:
        return 0

    def put_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.weights = dict(weights)
        self.adapter = {}

    def join(self, meeting: Meeting) -> None:
        if self.group is not None:
            self.group.close()
        self.group = TransferGroup(meeting, 1)

    def receive(self, announced: Iterable[Announced]) -> None:
        self.weights, self.adapter = {}, {}
        for one in announced:
            if self.group is None:
                raise RuntimeError("no group was joined")
            self.weights[one.name] = self.group.receive(one.dtype, one.shape)

    def forget(self) -> None: ...

    def put_adapter(self, adapter: Adapter) -> None:
        self.adapter = dict(adapter.tensors)

    def fingerprints(self, seed: int) -> Mapping[str, int]:
        return fingerprints(self.weights, seed)

    def adapter_fingerprints(self, adapter: Adapter, seed: int) -> Mapping[str, int]:
        found = fingerprints(self.adapter, seed)
        return {name: found[name] for name in adapter.ranks}

    def reset_prefix_cache(self) -> None:
        self.resets += 1

    def handed(self) -> Mapping[str, Any]:
        return {}

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        refuse_unfit(prompts, params, self.context)
        self.before()
        total = sum(float(t.sum()) for t in (*self.weights.values(), *self.adapter.values()))
        generator = torch.Generator().manual_seed(params.seeded())
        drawn = torch.randint(50, (len(prompts), params.max_tokens), generator=generator).tolist()
        done = [Sampled(tuple(ids), (total,) * len(ids), "length") for ids in drawn]
        for number in reversed(range(len(done))):
            if on_done is not None:
                on_done([number], [done[number]])
                self.after_each()
        return done

    def wake(self) -> None: ...
    def sleep(self) -> None: ...
    def close(self) -> None: ...


class Running:
    """A server in a thread of this process."""

    def __init__(self, port: int = 0, token: str | None = None, **changed: Any) -> None:
        self.engine = TableEngine()
        self.server = RolloutServer(("127.0.0.1", port), token)
        card = replace(CARD, **changed)
        self._thread = threading.Thread(target=self.server.serve, args=(self.engine, card))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self.server.port}"
        for _ in range(200):
            try:
                state_of(self.url)
                break
            except OSError:
                time.sleep(0.01)
            except UsageError:  # it wants its token
                break

    def stop(self) -> None:
        self.server.stop()
        self._thread.join()

    def restarted(self, **changed: Any) -> Running:
        self.stop()
        return Running(self.server.port, **changed)
