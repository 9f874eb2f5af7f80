"""Both ends of a handing over: what arrives is what was sent, and changes only fit the weights that they are from."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from grpo.core.rollout.server.wire import Unframed, frames
from grpo.core.rollout.sync import delta
from grpo.core.rollout.sync.changes import Changes, applied, changes_between
from grpo.core.rollout.sync.delta import Again, Changed, HeldWeights, LastWeights, Same, Sender, Whole, whole_of

Weights = dict[str, torch.Tensor]


def policy(seed: int = 0) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(300, 16, generator=generator).bfloat16()
    return {
        "embedding": embedding,
        "head": embedding,
        "turned": torch.randn(64, 80, generator=generator).bfloat16().T,
        "part": torch.randn(900, generator=generator)[100:800],
        "fine": torch.randn(40, 50, generator=generator),
        "scalar": torch.tensor(2.0),
        "empty": torch.empty(0, 4),
    }


def step(weights: Weights, share: float = 0.01, seed: int = 1) -> Weights:
    """A step that changes some entries of every tensor; tied ones stay tied."""
    generator = torch.Generator().manual_seed(seed)
    moved: dict[int, torch.Tensor] = {}
    for tensor in weights.values():
        mask = torch.rand(tensor.shape, generator=generator) < share
        moved.setdefault(id(tensor), torch.where(mask, tensor + 1, tensor))
    return {name: moved[id(tensor)] for name, tensor in weights.items()}


class End:
    """A receiver behind the bytes of the wire."""

    def __init__(self) -> None:
        self.held = HeldWeights()
        self.kinds: list[type] = []
        self.bytes = 0

    def take(self, data: bytes, *, keep: bool = True) -> Weights:
        self.bytes = len(data)
        return dict(self.held.taken(self._noted(Unframed(io.BytesIO(data))), keep=keep))

    def _noted(self, items: Iterable[Any]) -> Iterable[Any]:
        self.kinds = []
        for item in items:
            self.kinds.append(type(item))
            yield item


def sent(sender: Sender, weights: Weights) -> bytes:
    return b"".join(frames(sender.items(weights.items())))


def handed(sender: Sender, end: End, weights: Weights) -> None:
    """Hands weights over, and compares what arrives bit for bit."""
    found = end.take(sent(sender, weights), keep=sender.keeps)
    sender.arrived()
    assert list(found) == list(weights)
    for name, tensor in weights.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor), name


def test_after_the_first_time_only_what_changed_travels() -> None:
    sender, end, weights = Sender(LastWeights()), End(), policy()
    handed(sender, end, weights)
    whole = end.bytes
    assert end.kinds == [Whole, Again, Whole, Whole, Whole, Whole, Whole]
    for seed in range(1, 6):
        weights = step(weights, seed=seed)
        handed(sender, end, weights)
        assert end.kinds[:3] == [Changed, Again, Changed]
        assert end.bytes < whole / 5
    handed(sender, end, weights)
    assert set(end.kinds) == {Same, Again}, "nothing changed"
    handed(sender, end, step(weights, share=1.1))
    assert set(end.kinds) == {Whole, Again, Same}, "everything changed, but for a tensor without entries"
    assert end.bytes < 1.01 * whole


def test_without_changes_asked_for_everything_travels_and_nothing_is_kept() -> None:
    sender, end, weights = Sender(None), End(), policy()
    for _ in range(2):
        handed(sender, end, weights)
        assert set(end.kinds) == {Whole, Again}, "a tied head goes once"
    keeping = Sender(LastWeights())
    handed(keeping, End(), weights)
    with pytest.raises(ConnectionError, match="not held here"):
        end.take(sent(keeping, step(weights)))


def test_an_engine_that_is_in_doubt_gets_everything() -> None:
    sender, end, weights = Sender(LastWeights()), End(), policy()
    handed(sender, end, weights)
    sender.forget()
    handed(sender, end, step(weights))
    assert Changed not in end.kinds
    weights = step(weights, seed=2)
    sent(sender, weights)  # it never said that it arrived
    handed(sender, end, weights)
    assert Changed not in end.kinds


def test_a_receiver_that_was_restarted_takes_no_changes() -> None:
    sender, weights = Sender(LastWeights()), policy()
    handed(sender, End(), weights)
    with pytest.raises(ConnectionError, match="embedding arrived as what changed in weights that are not held here"):
        End().take(sent(sender, step(weights)))


def test_tensors_may_change_shape_and_type_and_be_untied() -> None:
    sender, end, weights = Sender(LastWeights()), End(), policy()
    handed(sender, end, weights)
    weights = {**weights, "embedding": torch.cat([weights["embedding"], torch.ones(20, 16, dtype=torch.bfloat16)])}
    handed(sender, end, weights)
    assert end.kinds[:2] == [Whole, Same], "the head is what it was, and no longer tied"
    handed(sender, end, {**weights, "fine": weights["fine"].double()})
    handed(sender, end, {**weights, "fine": weights["fine"].reshape(50, 40)})
    tied = {**weights, "head": weights["embedding"]}
    handed(sender, end, tied)
    handed(sender, end, step(tied))
    assert end.kinds[:2] == [Changed, Again]


def test_engines_that_share_a_copy_may_be_at_different_steps() -> None:
    last, weights = LastWeights(), policy()
    near, far = (Sender(last), End()), (Sender(last), End())
    handed(*near, weights)
    handed(*far, weights)
    for seed in range(1, 4):
        weights = step(weights, seed=seed)
        handed(*near, weights)
        assert Changed in near[1].kinds
    handed(*far, weights)
    assert Changed not in far[1].kinds, "it is three steps behind"
    weights = step(weights, seed=9)
    handed(*far, weights)
    handed(*near, weights)
    assert Changed in far[1].kinds
    assert Changed in near[1].kinds


def test_every_flipped_bit_is_refused() -> None:
    sender, end, weights = Sender(LastWeights()), End(), policy()
    data = sent(sender, weights)
    end.take(data)
    sender.arrived()
    moved = step(weights)
    changed = sent(sender, moved)
    generator = torch.Generator().manual_seed(4)
    for blob in (data, changed):
        for place in torch.randint(len(blob), (120,), generator=generator).tolist():
            broken = bytearray(blob)
            broken[place] ^= 1 << (place % 8)
            again = End()
            again.take(data)
            with pytest.raises(ConnectionError):
                again.take(bytes(broken))
    with pytest.raises(ConnectionError, match="broke off"):
        end.take(changed[:-9])


def test_changes_that_lead_elsewhere_are_refused() -> None:
    sender, end, weights = Sender(LastWeights()), HeldWeights(), policy()
    dict(end.taken(sender.items(weights.items()), keep=True))
    sender.arrived()
    lying = [
        Changed(one.name, one.digest[::-1], one.before, one.changes) if isinstance(one, Changed) else one
        for one in sender.items(step(weights).items())
    ]
    with pytest.raises(ConnectionError, match="does not lead to the weights that were announced"):
        dict(end.taken(lying, keep=True))


def test_of_several_threads_the_first_works_out_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Changes | None] = []
    inside: list[int] = []

    def slowly(old: torch.Tensor, new: torch.Tensor) -> Changes | None:
        inside.append(len(inside))
        time.sleep(0.05)  # long enough for the others to come
        return changes_between(old, new)

    monkeypatch.setattr(delta, "changes_between", slowly)
    last, before = LastWeights(), whole_of("fine", policy()["fine"])
    after = whole_of("fine", step(policy())["fine"])
    last.changes(before, "")
    threads = [threading.Thread(target=lambda: found.append(last.changes(after, before.digest))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == [0]
    made = [applied(before.tensor, changes) for changes in found if changes is not None]
    assert [torch.equal(tensor, after.tensor) for tensor in made] == [True] * 4
