"""Samples from engines that hold a copy of the policy, and verifies every copy before it is used.

Theory of operation. A copy can be wrong without an error: base weights served for an adapter, one layer of the last
step, a stale cache of keys and values. Each sync is therefore verified in layers, cheapest first:

1. Once per engine, a self-test: a large known change of the weights must move the engine's log-probabilities to where
   the changed policy has them. A fresh adapter computes nothing, so a copy that never arrives would else look right.
2. Each sync, exactly: fingerprints of what the engine computes with equal those of what was sent.
3. Each sync, a spot check: a fixed prompt longer than one block of the prefix cache is completed by the engine, and the
   policy must give the sampled tokens the same log-probabilities.
4. Each batch: the trainer compares the log-probabilities of all sampled tokens (core/train/trainer.py).

A failed sync is repeated in full, for the engines where it failed; a second failure ends the run and names the
parameters. The engines of a process are synced side by side, each in a thread; the calling thread alone reads the
policy. All processes go through a sync in step, with or without engines, since each read of a sharded policy takes all
of them. A process without an engine samples as a guest on another's. What ends a sync on one process ends it on all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from grpo.core.processes.group import agreed, any_of, gathered
from grpo.core.rollout.engine.link import EngineLink, GuestLink
from grpo.core.rollout.engine.spread import Seats, Spread
from grpo.core.rollout.engine.weight_fanout import hand_out
from grpo.core.rollout.sync.fault import EngineLost, SyncFault, end_together, faulty_anywhere, naming_failures
from grpo.core.rollout.sync.lora_choice import LoraChoice, LoraSync
from grpo.core.rollout.sync.payload import (
    NOTHING,
    Adapter,
    Recorder,
    adapter_of,
    differing,
    fingerprints,
    has_adapter,
    weight_stream,
)
from grpo.core.rollout.sync.self_test import open_prompt, perturbed, spread
from grpo.core.rollout.types import OnDone, PromptIds, Sampled, SamplingParams, evaluating
from grpo.plugins.errors import RunError

SPOT_MORE = 8  # most probable tokens of each that are compared, too
SPOT_TOKENS = 2  # the first shows the cached prompt, the second what decoding does with it
SPOT_SLACK = 5.0  # a few tokens may differ by so many times the tolerance of a batch's mean
MOVED = 3.0  # the self-test's change must move log-probabilities by so many times what is tolerated, or
CLOSER = 5.0  # leave the engine so many times closer to the changed policy than to the present one, and
LEAST_MOVED = 0.01  # move them by so many nats
SUMMED = ("sync/bytes", "sync/shared_bytes")  # over processes; of other metrics the largest is told


@dataclass(slots=True)
class Engine:
    """An engine that this process syncs, and what is known of it."""

    link: EngineLink
    epoch: int | None = None  # of the last handing over; None: what it holds is not known
    has_base: bool = False  # its own weights are the frozen ones
    tested: bool = False
    spot: Sampled | None = None  # what it completed the fixed prompt with
    error: Exception | None = None  # why it was left alone for the rest of this attempt

    def forget(self) -> None:
        """Takes it that the engine lost its weights."""
        self.epoch, self.has_base, self.tested = None, False, False
        self.link.forget()


class EngineRollouts:
    """The rollouts of one or more engines with verified weights.

    `links`: the engines that this process syncs. `guest`: another process's engine, where it has none. `tolerance`:
    mean difference of log-probabilities in nats that an engine's arithmetic explains. `shared_bytes`: of frozen weights
    that engine and policy share, which are never sent; None: each has its own. `types`: of the weights as they were
    loaded, by checkpoint name.
    """

    exact = False

    def __init__(
        self,
        *links: EngineLink,
        guest: GuestLink | None = None,
        tolerance: float,
        lora_sync: LoraSync = "auto",
        shared_bytes: int | None = None,
        types: Mapping[str, torch.dtype] = NOTHING,
    ) -> None:
        self.engines = [Engine(link) for link in links]
        self._guest = guest
        self._shared = shared_bytes
        self._types = types
        self._tolerance = tolerance
        self._choice = LoraChoice(lora_sync)
        self._syncs = 0
        self._bytes = 0  # that travelled in this sync
        self._everything = 0  # bytes of all that was handed over in it
        self._prompt: list[int] | None = None
        self._threads = ThreadPoolExecutor(max(1, len(links)), thread_name_prefix="grpo-sync")
        samples = [self._sampling(engine) for engine in self.engines]
        self._spread = Spread(samples if guest is None else [guest.generate])

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        start = time.perf_counter()
        self._bytes = self._everything = 0
        if again:
            for engine in self.engines:
                engine.forget()
        metrics, repeated = self._attempt(model, self.engines), False
        faulty = [engine for engine in self.engines if engine.error is not None]
        if any_of(bool(faulty), "the proof of the weights"):
            repeated = True
            for engine in faulty:
                engine.forget()
            metrics |= self._attempt(model, faulty)
            end_together(_lasting([engine.error for engine in faulty]), "the proof of the weights")
        metrics["sync/seconds"] = time.perf_counter() - start
        return self._settled(metrics | ({"sync/repeated": 1.0} if repeated else {}))

    def generate(self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None = None) -> list[Sampled]:
        return self._timed(prompts, params, on_done, self._spread.seats())

    def turns(self) -> Callable[[PromptIds, SamplingParams], list[Sampled]]:
        """Samples turn after turn; a rollout stays with the engine whose prefix cache has it."""
        seats = self._spread.seats()

        def sample(prompts: PromptIds, params: SamplingParams) -> list[Sampled]:
            return self._timed(prompts, params, None, seats)

        return sample

    def differing(self, model: Any) -> list[str]:
        """Compares everything that the engines of all processes compute with, see `Rollouts.differing`."""
        self._syncs += 1
        alone = has_adapter(model) and not self._choice.folds
        recorder = Recorder(weight_stream(model, base=alone, types=self._types), self._syncs)
        for _ in recorder:
            pass
        adapter = adapter_of(model) if alone else Adapter(1, {})
        expected = fingerprints(adapter.tensors, self._syncs)
        wrong: set[str] = set()
        for engine in self.engines:
            if alone:
                wrong.update(differing(expected, engine.link.adapter_fingerprints(adapter, self._syncs)))
            wrong.update(differing(recorder.fingerprints, engine.link.fingerprints(self._syncs)))
        anywhere = set().union(*gathered(wrong, "the comparison of the weights"))
        return [name for name in (*expected, *recorder.fingerprints) if name in anywhere]

    def rest(self) -> None:
        for engine in self.engines:
            engine.link.sleep()

    def close(self) -> None:
        for engine in self.engines:
            engine.link.close()
        self._spread.close()
        self._threads.shutdown()

    def _sampling(self, engine: Engine) -> Callable[..., list[Sampled]]:
        def sample(prompts: PromptIds, params: SamplingParams, on_done: OnDone | None) -> list[Sampled]:
            if engine.epoch != engine.link.epoch():
                raise SyncFault("the engine was restarted after the sync and holds the weights of its file", [])
            done = engine.link.generate(prompts, params, on_done)
            if engine.epoch != engine.link.epoch():
                raise SyncFault("the engine was restarted while it sampled", [])
            return done

        return sample

    def _timed(self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None, seats: Seats) -> list[Sampled]:
        start = time.perf_counter()
        done = self._spread.generate(prompts, params, on_done, seats)
        self._choice.sampled(sum(len(result.token_ids) for result in done), time.perf_counter() - start)
        return done

    def _attempt(self, model: Any, engines: Sequence[Engine]) -> dict[str, float]:
        """Syncs some engines and verifies them; a fault of one is left with it, any other error raised."""
        lora = has_adapter(model)
        if lora:
            self._choice = agreed(self._choice, "the way that the adapter goes")
        for engine in engines:
            engine.error = None
        self._each(engines, self._find)
        self._end_unless_faults(engines)
        folds = lora and self._choice.choose(
            not any_of(any(not engine.link.lora for engine in self.engines), "the way that the adapter goes")
        )
        untested = [engine for engine in engines if engine.error is None and not engine.tested]
        if any_of(bool(untested), "the self-test"):
            self._self_test(model, untested, folds)
        start = time.perf_counter()
        self._put(model, engines, folds)
        handed = time.perf_counter() - start
        self._complete_spot(model, engines)
        difference = self._spot_check(model, engines)
        self._end_unless_faults(engines)
        if lora:
            self._choice.synced(handed)
        return {
            "sync/bytes": float(self._bytes),
            "sync/share": self._bytes / max(1, self._everything),
            "sync/hand_over_seconds": handed,
            "sync/spot_difference": difference,
            **({"sync/folded": float(folds)} if lora else {}),
            **({"sync/shared_bytes": float(self._shared)} if self._shared is not None else {}),
        }

    def _find(self, engine: Engine) -> None:
        engine.link.wake()
        epoch = engine.link.epoch()
        if epoch != engine.epoch:
            engine.forget()
        engine.epoch = epoch

    def _put(self, model: Any, engines: Sequence[Engine], folds: bool) -> None:
        """Sends the weights; an engine is at fault where the fingerprints show that they did not arrive."""
        self._syncs += 1
        seed = self._syncs
        alone = has_adapter(model) and not folds
        going = [engine for engine in engines if engine.error is None]
        lacking = [engine for engine in going if not alone or not engine.has_base]
        if any_of(bool(lacking), "the handing over of the weights"):
            recorder = Recorder(weight_stream(model, base=alone, types=self._types), seed)
            # Shared ones are read only for the fingerprints: a reload would give the engine memory of its own again.
            takers = lacking if self._shared is None else []
            for engine in lacking:
                engine.has_base = False
            taken = hand_out(recorder, [engine.link.put_weights for engine in takers])
            for engine, result in zip(takers, taken, strict=True):
                size = None
                try:
                    with naming_failures("the weights"):
                        size = result.result()
                except Exception as error:
                    engine.error = error
                self._bytes += recorder.bytes if size is None else size
                self._everything += recorder.bytes

            def compare(engine: Engine) -> None:
                _refuse(differing(recorder.fingerprints, engine.link.fingerprints(seed)))
                engine.has_base = alone

            self._each(lacking, compare)
        if alone:
            adapter = adapter_of(model)
            expected = fingerprints(adapter.tensors, seed)

            def put_adapter(engine: Engine) -> None:
                with naming_failures("the adapter"):
                    engine.link.put_adapter(adapter)
                _refuse(differing(expected, engine.link.adapter_fingerprints(adapter, seed)))

            self._each(going, put_adapter)
            self._bytes += adapter.bytes * len(going)
            self._everything += adapter.bytes * len(going)
        self._each(going, lambda engine: engine.link.reset_prefix_cache())

    def _spot_check(self, model: Any, engines: Sequence[Engine]) -> float:
        largest, limit = 0.0, SPOT_SLACK * self._tolerance
        for engine, difference in self._differences(model, engines):
            largest = max(largest, difference)
            if not difference <= limit:
                engine.error = SyncFault(
                    f"the engine's log-probabilities of a fixed prompt differ by {difference:.2g} from the policy's "
                    f"(at most {limit:.2g} is rounding)",
                    [],
                )
        return largest

    def _self_test(self, model: Any, engines: Sequence[Engine], folds: bool) -> None:
        """Sends a known large change; an engine that does not follow it is at fault."""
        limit = SPOT_SLACK * self._tolerance
        for way in (False, True) if has_adapter(model) and self._choice.undecided else (folds,):
            self._complete_spot(model, engines)  # leaves keys and values of the weights before in the cache
            with perturbed(model) as changed:
                self._put(model, engines, way)
                self._complete_spot(model, engines)
                apart = self._differences(model, engines)
            moved = self._differences(model, engines)
            for (engine, after), (_, before) in zip(apart, moved, strict=True):
                if not (after <= limit and before >= min(MOVED * limit, max(CLOSER * after, LEAST_MOVED))):
                    engine.error = SyncFault(
                        f"a test change of the weights should leave the engine within {limit:.2g} of the changed "
                        f"policy, and much closer to it than to the present one; it is {after:.2g} and {before:.2g} "
                        "away",
                        changed,
                    )
        for engine in engines:
            engine.tested = engine.error is None

    def _complete_spot(self, model: Any, engines: Sequence[Engine]) -> None:
        """Completes the fixed prompt on the engines; training's random numbers do not notice."""
        if self._prompt is None:
            links = [engine.link for engine in self.engines] + ([] if self._guest is None else [self._guest])
            length = max(link.block + link.block // 4 + 1 for link in links)
            length = min(length, *(link.context - SPOT_TOKENS for link in links))
            self._prompt = open_prompt(model, max(1, length))
        prompt = self._prompt
        params = SamplingParams(max_tokens=SPOT_TOKENS, eos_ids=(), pad_id=0, seed=0, most_probable=SPOT_MORE)

        def complete(engine: Engine) -> None:
            (engine.spot,) = engine.link.generate([prompt], params)

        self._each(engines, complete)

    def _differences(self, model: Any, engines: Sequence[Engine]) -> list[tuple[Engine, float]]:
        """Returns how far each engine that is not at fault is from the policy in what it completed.

        Compared are the sampled tokens, at a temperature of 1, and the most probable ones, since a confident policy
        gives the first about 0 whatever its weights. The unit is the spread of the policy's logits, to which rounding
        is relative.
        """
        spots = [(engine, engine.spot) for engine in engines if engine.error is None and engine.spot is not None]
        assert self._prompt is not None
        length, device = len(self._prompt), model.get_input_embeddings().weight.device
        tokens = [list(spot.token_ids) for _, spot in spots] or [[0] * SPOT_TOKENS]  # a pass that others wait for
        ids = torch.tensor([self._prompt + token for token in tokens], device=device)
        with evaluating(model), torch.no_grad():
            logits = model(input_ids=ids).logits[:, length - 1 : -1].float()
        apart: list[tuple[Engine, float]] = []
        for row, (engine, spot) in enumerate(spots):
            own = logits[row].log_softmax(-1).cpu()
            sampled = [*enumerate(zip(spot.token_ids, spot.logprobs, strict=True))]
            sampled += [(place, pair) for place, pairs in enumerate(spot.most_probable) for pair in pairs]
            places, theirs = (
                torch.tensor([(place, token) for place, (token, _) in sampled]),
                [pair[1] for _, pair in sampled],
            )
            difference = (own[places[:, 0], places[:, 1]] - torch.tensor(theirs)).abs().max() / spread(logits[row])
            apart.append((engine, float(difference)))  # NaN when either side has one
        return apart

    def _each(self, engines: Sequence[Engine], work: Callable[[Engine], None]) -> None:
        """Does something with each engine that is not at fault, side by side; an error is left with its engine."""

        def done(engine: Engine) -> None:
            try:
                work(engine)
            except Exception as error:
                engine.error = error

        going = [engine for engine in engines if engine.error is None]
        if len(going) == 1:
            done(going[0])
        else:
            list(self._threads.map(done, going))

    def _end_unless_faults(self, engines: Sequence[Engine]) -> None:
        """Raises errors other than weights that did not arrive, on all processes."""
        errors = [engine.error for engine in engines]
        faulty_anywhere(next((e for e in errors if e and not isinstance(e, SyncFault)), None), "the sync")

    def _settled(self, metrics: dict[str, float]) -> dict[str, float]:
        handed = [engine.link.handed() for engine in self.engines]
        every = gathered((metrics, handed), "the proven weights")
        if self._guest is not None:
            self._guest.follow([other for _, others in every for other in others])
        names = dict.fromkeys(name for report, _ in every for name in report)
        values = {name: [report[name] for report, _ in every if name in report] for name in names}
        return {name: sum(value) if name in SUMMED else max(value) for name, value in values.items()}


def _refuse(names: list[str]) -> None:
    if names:
        raise SyncFault("weights in the engine are not those that were handed over", names)


def _lasting(errors: Sequence[Exception | None]) -> Exception | None:
    """Returns what ends the run after a second attempt: an engine that went away, or weights that do not arrive."""
    faults = [error for error in errors if error is not None]
    if not faults or isinstance(faults[0], EngineLost):
        return faults[0] if faults else None
    error = RunError(
        f"the rollout engine does not serve the policy's weights, and neither after a second full sync: "
        f"{faults[0]}. Training on its completions would learn nothing; nothing was trained on them. Sample "
        "with rollout.backend='hf', and report this with the model's name and vLLM's version."
    )
    error.__cause__ = faults[0]
    return error
