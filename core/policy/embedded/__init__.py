"""Ships the embedded policy: a tiny chat model, so that the first run needs neither network nor GPU.

It is a Qwen2 of 0.75 million parameters whose tokenizer knows only `grpo.envs.datasets.word_problems`. It was taught to
work them out, then spoilt with replies that guess; GRPO mostly unlearns that habit, which says nothing about a real
model. `examples/embedded_model/make.py` makes its files.
"""

from __future__ import annotations

from pathlib import Path


def embedded_model_path() -> Path:
    return Path(__file__).parent
