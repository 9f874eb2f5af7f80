"""Rollouts from an engine that holds a copy of the policy, every copy proven before it is used.

In: the policy. Out: completions of an engine that was shown to serve this policy's weights.

Theory of operation. A copy can be wrong without an error: base weights served for an adapter, one layer of the last
step, a cache of keys and values of the step before. Each sync is therefore proven in layers, cheapest first:

1. Once per engine, a self-test: a large known change of the weights must move the engine's log-probabilities to where
   the changed policy has them. A fresh adapter computes nothing, so without it a copy that never arrives would look
   right at the first step.
2. Each sync, exactly: fingerprints of what the engine computes with equal those of what was handed over.
3. Each sync, a spot check: a fixed prompt longer than one block of the prefix cache is completed by the engine, and the
   policy must give the sampled tokens the same log-probabilities.
4. Each batch: the trainer compares the log-probabilities of all sampled tokens (core/train/trainer.py).

A sync that fails is repeated in full; when it fails again the run stops and names the parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from grpo.core.rollout.engine.link import EngineLink
from grpo.core.rollout.sync.fault import EngineLost, SyncFault, told
from grpo.core.rollout.sync.lora_choice import LoraChoice, LoraSync
from grpo.core.rollout.sync.payload import Recorder, adapter_of, differing, fingerprints, has_adapter, weight_stream
from grpo.core.rollout.sync.self_test import open_prompt, perturbed, perturbed_logits
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams, evaluating
from grpo.core.text.randomness import preserved_randomness
from grpo.plugins.errors import RunError

SPOT_TOKENS = 2  # the first shows the cached prompt, the second what decoding does with it
SPOT_SLACK = 5.0  # a few tokens may differ by so many times the tolerance of a batch's mean
MOVED = 3.0  # the self-test's change must move log-probabilities by so many times what is tolerated


class EngineRollouts:
    """An engine's rollouts with proven weights.

    Args:
        link: the engine.
        tolerance: mean difference of log-probabilities that the engine's arithmetic explains, in nats.
        temperature: of the log-probabilities that are compared.
        lora_sync: how an adapter is handed over.
        shared_bytes: of the frozen weights that the engine and the policy both compute with, which are then never
            handed over; None: each has its own.
    """

    exact = False

    def __init__(
        self,
        link: EngineLink,
        *,
        tolerance: float,
        temperature: float = 1.0,
        lora_sync: LoraSync = "auto",
        shared_bytes: int | None = None,
    ) -> None:
        self.link = link
        self._shared = shared_bytes
        self._tolerance = tolerance
        self._temperature = temperature
        self._choice = LoraChoice(lora_sync)
        self._epoch: int | None = None
        self._syncs = 0
        self._bytes = 0  # that travelled in this sync
        self._everything = 0  # bytes of all that was handed over in it
        self._has_base = False  # the engine's own weights are the frozen ones
        self._tested = False
        self._prompt: list[int] | None = None

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        """Hands the policy over and proves that it arrived, see `Rollouts.sync`."""
        start = time.perf_counter()
        self._bytes = self._everything = 0
        self.link.wake()
        if again:
            self._forget()
        try:
            metrics = self._sync(model)
        except SyncFault:
            self._forget()
            try:
                metrics = self._sync(model)
            except EngineLost:
                raise
            except SyncFault as fault:
                raise RunError(
                    f"the rollout engine does not serve the policy's weights, and neither after a second full sync: "
                    f"{fault}. Training on its completions would learn nothing; nothing was trained on them. Sample "
                    "with rollout.backend='hf', and report this with the model's name and vLLM's version."
                ) from fault
            metrics["sync/repeated"] = 1.0
        metrics["sync/seconds"] = time.perf_counter() - start
        return metrics

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        """Samples with the engine, see `Rollouts.generate`."""
        start = time.perf_counter()
        if self._epoch != self.link.epoch():
            raise SyncFault("the engine was restarted after the sync and holds the weights of its file", [])
        done = self.link.generate(prompts, params, on_done)
        if self._epoch != self.link.epoch():
            raise SyncFault("the engine was restarted while it sampled", [])
        self._choice.sampled(sum(len(one.token_ids) for one in done), time.perf_counter() - start)
        return done

    def turns(self) -> Callable[[Sequence[Sequence[int]], SamplingParams], list[Sampled]]:
        """Samples every turn by `generate`; the engine keeps what it computed in its prefix cache."""
        return self.generate

    def differing(self, model: Any) -> list[str]:
        """Compares everything that the engine computes with, see `Rollouts.differing`."""
        self._syncs += 1
        if has_adapter(model) and not self._choice.folds:
            adapter = adapter_of(model)
            expected = fingerprints(adapter.tensors, self._syncs)
            wrong = differing(expected, self.link.adapter_fingerprints(adapter, self._syncs))
        else:
            wrong = []
        base = has_adapter(model) and not self._choice.folds
        recorder = Recorder(weight_stream(model, base=base), self._syncs)
        for _ in recorder:
            pass
        return wrong + differing(recorder.fingerprints, self.link.fingerprints(self._syncs))

    def rest(self) -> None:
        """Lets the engine give up its memory, see `Rollouts.rest`."""
        self.link.sleep()

    def close(self) -> None:
        """Stops the engine."""
        self.link.close()

    def _forget(self) -> None:
        self._has_base = False
        self._tested = False
        self._epoch = None
        self.link.forget()

    def _sync(self, model: Any) -> dict[str, float]:
        epoch = self.link.epoch()
        if epoch != self._epoch:
            self._forget()
        self._epoch = epoch
        if not self._tested:
            self._self_test(model)
            self._tested = True
        start = time.perf_counter()
        lora = has_adapter(model)
        folds = lora and self._choice.choose(self.link.lora)
        self._put(model, {}, folds)
        handed = time.perf_counter() - start
        difference = self._spot_check(model)
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

    def _put(self, model: Any, changed: Mapping[str, torch.Tensor], folds: bool) -> None:
        """Hands the weights over, `changed` in the place of those of the same names.

        Raises:
            SyncFault: the fingerprints show that they did not arrive.
        """
        self._syncs += 1
        alone = has_adapter(model) and not folds
        if not alone or not self._has_base:
            recorder = Recorder(weight_stream(model, base=alone, changed=changed), self._syncs)
            self._has_base = False
            if self._shared is not None:
                for _ in recorder:
                    pass  # only for the fingerprints: a reload would give the engine memory of its own again
            else:
                with told("the weights"):
                    travelled = self.link.put_weights(recorder)
                self._bytes += recorder.bytes if travelled is None else travelled
                self._everything += recorder.bytes
            self._refuse(differing(recorder.fingerprints, self.link.fingerprints(self._syncs)))
            self._has_base = alone
        if alone:
            adapter = adapter_of(model, changed)
            with told("the adapter"):
                self.link.put_adapter(adapter)
            expected = fingerprints(adapter.tensors, self._syncs)
            self._refuse(differing(expected, self.link.adapter_fingerprints(adapter, self._syncs)))
            self._bytes += adapter.bytes
            self._everything += adapter.bytes
        self.link.reset_prefix_cache()

    def _refuse(self, names: list[str]) -> None:
        if names:
            raise SyncFault("weights in the engine are not those that were handed over", names)

    def _spot_check(self, model: Any) -> float:
        """Completes a fixed prompt and returns the largest difference of log-probabilities.

        Raises:
            SyncFault: it is more than the engine's arithmetic explains.
        """
        prompt, sampled = self._complete_spot(model)
        difference = _largest(self._logprobs(model, prompt, sampled, {}), sampled)
        if not difference <= SPOT_SLACK * self._tolerance:
            raise SyncFault(
                f"the engine's log-probabilities of a fixed prompt differ by {difference:.2g} from the policy's "
                f"(at most {SPOT_SLACK * self._tolerance:.2g} is rounding)",
                [],
            )
        return difference

    def _self_test(self, model: Any) -> None:
        """Hands over a known large change; the engine must follow it.

        Raises:
            SyncFault: it does not.
        """
        changed = perturbed(model)
        for folds in {False, True} if has_adapter(model) and self._choice.undecided else {self._choice.folds}:
            if not folds and has_adapter(model) and not self.link.lora:
                continue
            self._complete_spot(model)  # leaves keys and values of the weights before in the cache
            self._put(model, changed, folds)
            prompt, sampled = self._complete_spot(model)
            apart = _largest(self._logprobs(model, prompt, sampled, changed), sampled)
            moved = _largest(self._logprobs(model, prompt, sampled, {}), sampled)
            limit = SPOT_SLACK * self._tolerance
            if not apart <= limit or not moved >= MOVED * limit:
                raise SyncFault(
                    f"a test change of the weights should leave the engine within {limit:.2g} of the changed policy "
                    f"and {MOVED * limit:.2g} away from the present one; it is {apart:.2g} and {moved:.2g} away",
                    list(changed),
                )

    def _complete_spot(self, model: Any) -> tuple[list[int], Sampled]:
        """Completes the fixed prompt; training's random numbers do not notice."""
        if self._prompt is None:
            length = self.link.block + self.link.block // 4 + 1
            self._prompt = open_prompt(model, max(1, min(length, self.link.context - SPOT_TOKENS)))
        params = SamplingParams(max_tokens=SPOT_TOKENS, eos_ids=(), pad_id=0, temperature=self._temperature)
        with preserved_randomness():
            (sampled,) = self.link.generate([self._prompt], params)
        return self._prompt, sampled

    def _logprobs(
        self, model: Any, prompt: list[int], sampled: Sampled, changed: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Returns the policy's log-probabilities [T] float32 on the CPU of the sampled tokens."""
        device = model.get_input_embeddings().weight.device
        ids = torch.tensor([prompt + list(sampled.token_ids)], device=device)
        with evaluating(model), torch.no_grad():
            logits = perturbed_logits(model, ids, changed)[0, len(prompt) - 1 : -1]
        logprobs = (logits.float() / self._temperature).log_softmax(-1)
        return logprobs.gather(-1, ids[0, len(prompt) :, None])[:, 0].cpu()


def _largest(logprobs: torch.Tensor, sampled: Sampled) -> float:
    """Returns the largest difference in nats; NaN when either side has one."""
    return float((logprobs - torch.tensor(sampled.logprobs)).abs().max())
