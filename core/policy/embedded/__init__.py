"""Ships the embedded policy: a tiny chat model, so that the first run needs neither network nor GPU.

It is a Qwen2 of 0.75 million parameters with its own tokenizer that knows only the word problems of
`grpo.envs.datasets.word_problems`. It has a planted habit: taught to work them out, then spoilt with replies that
guess. Most of what GRPO gains is the habit unlearned, which says nothing about what a real model would gain.
`examples/embedded_model/make.py` makes its files.
"""

from __future__ import annotations

from pathlib import Path


def embedded_model_path() -> Path:
    return Path(__file__).parent
