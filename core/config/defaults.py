"""Holds the values of settings that are left out, so that planning, pages and help agree on them."""

from __future__ import annotations

from typing import Literal

Dtype = Literal["float32", "bfloat16", "float16"]

EMBEDDED_STEPS = 60
EPOCHS = 1.0
MADE_EPISODES = 1000  # at least, of an environment that makes its own
NAMED_MICRO_BATCH = 8
SHORT_MICRO_TOKENS = 2048  # up to so many, of prompts and completions, even more completions share a pass
DEFAULT_LR = {"embedded": 3e-5, "named": 1e-6}
LORA_LR_FACTOR = 10.0  # an adapter wants about ten times the learning rate of full fine-tuning
WARMUP_LR_FACTOR = 10.0  # and supervised steps about ten times that of policy-gradient steps
SAVE_EVERY = 20
EMBEDDED_COMPLETION = 96  # tokens; the longest worked answer of the embedded problems has fewer
NAMED_COMPLETION = 512
AGENT_CALLS = 20  # of the policy in one episode of an agent, unless the user says how many
ROLLOUT_TOKENS = 4096  # after the first prompt of an episode of several turns, unless the user says how many
ROLLOUT_MICRO_TOKENS = 8192  # that go through the model at once in an update, unless the user says how many rows
OBSERVED = 256  # tokens between two turns that fit, unless the user says how long a rollout may be
TOLERANCE = {"float32": 2e-4, "bfloat16": 0.1, "float16": 0.02}  # mean difference of log-probabilities, nats
SERVER_PORT = 8271


def dtype_of(asked: Dtype | None, model: str | None) -> Dtype:
    """Returns the data type of the weights: the user's, else bfloat16 for a named model on a GPU, else float32."""
    import torch

    if asked is not None:
        return asked
    return "bfloat16" if torch.cuda.is_available() and model is not None else "float32"


def default_completion(*, embedded: bool) -> int:
    """Returns the tokens after which completions are cut, unless the user says otherwise."""
    return EMBEDDED_COMPLETION if embedded else NAMED_COMPLETION
