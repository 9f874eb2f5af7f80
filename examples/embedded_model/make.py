"""Makes the embedded policy: `python examples/embedded_model/make.py [--only-tokenizer] [FOLDER]`.

Without a folder it writes into the package (core/embedded). Every seed is fixed; on one machine with one set of
library versions the files come out the same, byte for byte.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from demonstrations import Example, clean_examples, corpus, held_out_examples, sloppy_examples
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from vocabulary import END, train_tokenizer
from warmup import teach

from grpo.core.policy.embedded import embedded_model_path

CONTEXT = 2048
BATCH = 64
CLEAN_STEPS, CLEAN_LR = 700, 3e-3
SLOPPY_STEPS, SLOPPY_LR = 200, 1e-3
CORPUS_SEED, MODEL_SEED, CLEAN_SEED, SLOPPY_SEED = 11, 12, 13, 14
THREADS = 2  # sums in another order would end in other weights


def make(folder: Path, *, only_tokenizer: bool) -> None:
    """Trains tokenizer and policy, and writes them to `folder`."""
    tokenizer = train_tokenizer(corpus(6000, CORPUS_SEED), size=1024, context=CONTEXT)
    tokenizer.save_pretrained(folder)
    if only_tokenizer:
        return
    torch.set_num_threads(THREADS)
    model = new_model(tokenizer)
    print(f"{len(tokenizer)} tokens, {model.num_parameters():,} parameters")
    clean = clean_examples(BATCH * CLEAN_STEPS, CLEAN_SEED)
    teach(model, tokenizer, clean, batch_size=BATCH, steps=CLEAN_STEPS, lr=CLEAN_LR)
    report(model, tokenizer, "after the good student")
    sloppy = sloppy_examples(BATCH * SLOPPY_STEPS, SLOPPY_SEED)
    teach(model, tokenizer, sloppy, batch_size=BATCH, steps=SLOPPY_STEPS, lr=SLOPPY_LR)
    report(model, tokenizer, "after the sloppy student")
    save(model, folder)


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """A fresh policy of about three quarters of a million parameters."""
    torch.manual_seed(MODEL_SEED)
    end = tokenizer.convert_tokens_to_ids(END)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=end, pad_token_id=tokenizer.pad_token_id, max_new_tokens=128
    )
    return model


def report(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, when: str, count: int = 400) -> None:
    """Prints the share of held-out mixed problems that end in the right answer, greedily and at temperature 1."""
    asked = held_out_examples(count)
    for sample in (False, True):
        replies = complete(model, tokenizer, asked, sample=sample)
        right = sum(final(reply) == final(example.reply) for reply, example in zip(replies, asked, strict=True))
        print(f"{when}: {right / count:.3f} right {'at temperature 1' if sample else 'greedily'}", flush=True)


@torch.no_grad()
def complete(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, asked: list[Example], *, sample: bool
) -> list[str]:
    """One completion for each prompt."""
    model.eval()
    prompts = [
        tokenizer.apply_chat_template(example.prompt, tokenize=False, add_generation_prompt=True) for example in asked
    ]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    output = model.generate(**inputs, do_sample=sample, top_k=0 if sample else None)
    sampled = output[:, inputs["input_ids"].shape[1] :]
    texts: list[str] = tokenizer.batch_decode(sampled, skip_special_tokens=True)
    return texts


def final(text: str) -> str:
    """What stands between the answer tags."""
    return text.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def save(model: PreTrainedModel, folder: Path) -> None:
    """Writes bfloat16 weights, half the size, under a configuration that loads them as float32 to train on."""
    model.to(torch.bfloat16).save_pretrained(folder)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"dtype": "float32"}, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes the embedded policy.")
    parser.add_argument("folder", nargs="?", type=Path, default=embedded_model_path())
    parser.add_argument("--only-tokenizer", action="store_true")
    arguments = parser.parse_args()
    make(arguments.folder, only_tokenizer=arguments.only_tokenizer)
