"""The embedded policy: nothing in, the folder of a tiny chat model out.

The model stands beside this file, so that the first run needs neither network nor GPU: a Qwen2 of about three quarters
of a million parameters with its own tokenizer, loadable by transformers, PEFT and vLLM as it is. It knows nothing but
the word problems of `grpo.envs.datasets.word_problems`.

It is a demonstration policy with a planted habit. It was first taught to work these problems out, which it could then
do almost without fault, and afterwards spoilt with the replies of a sloppy student, who mostly guesses a number
instead of working, the more so the longer the problem. Most of what GRPO then gains is the habit unlearned, from
reward alone. It shows that the machinery works; it says nothing about how much a real model would gain.
`examples/embedded_model/make.py` makes all of its files.
"""

from __future__ import annotations

from pathlib import Path

EMBEDDED_NAME = "grpo-demo-0.7m"


def embedded_model_path() -> Path:
    """Returns the folder with the model's weights, configuration and tokenizer."""
    return Path(__file__).parent
