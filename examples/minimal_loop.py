"""The whole method in one file: rows → completions → outcomes → advantages → loss → step.

    python examples/minimal_loop.py [STEPS]

It trains the embedded model on the embedded word problems with the parts that `grpo run` is made of, and leaves out
what makes a run: planning, checkpoints, records, proof of a rollout engine's weights, several turns, several processes.
Read it first; then core/run/job.py, which does the same with all of that.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from grpo.core.env.episodes import Episode, episodes_of
from grpo.core.env.prompts import encode_episodes
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import end_ids, load_model, load_tokenizer
from grpo.core.record.versions import silence_libraries
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.turns.play import Trajectory, completed
from grpo.core.rollout.types import SamplingParams
from grpo.core.scoring.outcome import Outcome
from grpo.core.scoring.scorer import Scorer
from grpo.core.train.advantages.compute import Advantages, group_advantages
from grpo.core.train.batch.batch import score_column
from grpo.core.train.batch.tensors import Tensors, counted, padded, whole_ids, whole_mask
from grpo.core.train.update.forward import completion_logps
from grpo.core.train.update.head import attach_logps
from grpo.core.train.update.objective import Counts, Objective, Tokens, policy_loss
from grpo.plugins.host import Host

ENV = "gsm8k"
REWARDS = ["proximity", "gsm8k.soft_format:weight=0.2"]
PROMPTS, GROUP = 8, 8  # prompts of a step, completions of each
LENGTH = 96  # tokens of a completion
LEARNING_RATE = 1e-4
LOSS, ADVANTAGE = "dapo:epsilon_high=0.28", "group_mean"


def main(steps: int = 20) -> list[float]:
    """Trains, prints a line for each step, and returns the mean reward of each."""
    silence_libraries()
    torch.manual_seed(0)
    host = Host.discover()  # every installed plugin; rewards and environments are named by SPEC
    env = host.env(ENV)
    rewards = [host.reward(spec) for spec in REWARDS]
    objective, advantage = Objective(host.loss(LOSS)), host.advantage(ADVANTAGE)

    # Rows: an environment's rows become episodes, each with a prompt and the columns that rewards may read.
    episodes = episodes_of(env, "train", limit=PROMPTS * steps, unbounded=0)

    # The policy. Its head learns to return log-probabilities without making logits.
    folder = str(embedded_model_path())
    tokenizer, model = load_tokenizer(folder), load_model(folder, "float32")
    attach_logps(model, temperature=1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.0)

    means = []
    with Scorer(rewards) as scorer:
        for step in range(steps):
            starts = [one for one in episodes[step * PROMPTS : (step + 1) * PROMPTS] for _ in range(GROUP)]
            prompts, rollouts = sample(model, tokenizer, starts)
            outcomes = scorer.score([one.completion for one in rollouts])
            advantages = advantages_of(outcomes, rewards, advantage)
            loss = update(model, optimizer, objective, tensors_of(tokenizer, prompts, rollouts, advantages))
            known = advantages.totals[~advantages.totals.isnan()]
            means.append(known.mean().item())
            print(f"step {step + 1}  reward {means[-1]:.3f}  no signal {advantages.no_signal:.2f}  loss {loss:.4f}")
    return means


def sample(model: Any, tokenizer: Any, starts: Sequence[Episode]) -> tuple[list[list[int]], list[Trajectory]]:
    """Samples a completion for each episode; returns the prompts as token ids, and what followed them."""
    params = SamplingParams(max_tokens=LENGTH, eos_ids=end_ids(tokenizer, model), pad_id=tokenizer.pad_token_id)
    backend = HfRollouts()
    backend.sync(model)  # nothing to hand over here; an engine with weights of its own is proven to have them
    prompts = encode_episodes(tokenizer, starts)
    rollouts = []
    for episode, sampled in zip(starts, backend.generate(prompts, params), strict=True):
        text = tokenizer.decode(list(sampled.token_ids), skip_special_tokens=True)
        chosen = (True,) * len(sampled.token_ids)  # of several turns, the environment's tokens would be False
        rollouts.append(Trajectory(sampled.token_ids, sampled.logprobs, chosen, completed(episode, text, sampled)))
    return prompts, rollouts


def advantages_of(outcomes: dict[str, list[Outcome]], rewards: Sequence[Any], advantage: Any) -> Advantages:
    """Compares each completion with its group. A failure or an abstention is NaN here, and never a 0."""
    columns = [score_column(outcomes[reward.name]) for reward in rewards]
    failed = [any(outcomes[r.name][i].kind == "failure" for r in rewards) for i in range(len(columns[0]))]
    return group_advantages(
        torch.tensor(columns, dtype=torch.float64).T,
        torch.tensor(failed),
        torch.tensor([reward.weight for reward in rewards], dtype=torch.float64),
        GROUP,
        advantage,
    )


def tensors_of(
    tokenizer: Any, prompts: Sequence[Sequence[int]], rollouts: Sequence[Trajectory], advantages: Advantages
) -> Tensors:
    """Lays the rollouts out; those that a reward failed on are masked."""
    tensors = padded(prompts, rollouts, tokenizer.pad_token_id, torch.device("cpu"))
    tensors["completion_mask"] = tensors["completion_mask"] * advantages.trained[:, None]
    tensors["advantages"] = advantages.values
    return tensors


def update(model: Any, optimizer: torch.optim.Optimizer, objective: Objective, batch: Tensors) -> float:
    """Makes one optimizer step on the batch and returns the loss."""
    model.train()
    mask = counted(batch)
    logps, *_ = completion_logps(
        model,
        whole_ids(batch),
        whole_mask(batch),
        mask.shape[1],
        pack_for=model.config.hidden_size,  # a prompt is computed once for all of its completions
        entropy="none",
    )
    counts = Counts(rollouts=len(mask), tokens=mask.sum(), batch_tokens=mask.sum(), longest=LENGTH, accumulation=1)
    loss = policy_loss(objective, Tokens(logps, mask, batch["advantages"]), counts).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains the embedded model on the embedded word problems.")
    parser.add_argument("steps", nargs="?", type=int, default=20)
    main(parser.parse_args().steps)
