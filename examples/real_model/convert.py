"""Makes a folder that transformers loads of a model in the GGUF format: weights of a few bits in, float32 out.

    make real-model
    make agent-model

call this with models that packages bring along, so that a real chat model is at hand without a hub. The first is
SmolLM2-135M-Instruct (Apache-2.0): a Llama of 134.5 million parameters, 30 layers, a vocabulary of 49,152, a context of
8,192 and a ChatML template with a system prompt of its own. The second is Qwen2.5-Coder-0.5B-Instruct (Apache-2.0),
which can call tools: 494 million parameters, 24 layers, a vocabulary of 151,936, a context of 32,768. The weights are
those of the packages, rounded to about 4 bits; as float32 they take 538 MB and 2 GB.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

END, PAD = "<|im_end|>", "<|endoftext|>"
ROUNDED = 0.1  # of the mean size of a weight: what two roundings of one matrix differ by at most


def convert(source: Path, target: Path) -> None:
    """Writes model and tokenizer of a GGUF file into a folder, which appears whole or not at all.

    Args:
        source: the file.
        target: the folder; it must not exist.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, name = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
    tokenizer.eos_token, tokenizer.pad_token = END, PAD
    found = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    # What was loaded calls itself quantised, and could not be saved: the weights go into a model that does not.
    del found.config.quantization_config
    model = type(found)(found.config)
    model.load_state_dict(found.state_dict())
    ends, begins = model.get_output_embeddings().weight.data, model.get_input_embeddings().weight.data
    if (ends - begins).abs().mean() < ROUNDED * ends.abs().mean():  # one matrix, which the file holds twice
        begins.copy_(ends)  # the output layer is kept with more bits
        model.config.tie_word_embeddings = True
    model.tie_weights()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        made.rename(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
    print(f"wrote {sys.argv[2]}")
