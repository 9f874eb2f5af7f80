"""Texts in, a chat tokenizer out: byte-level BPE with digits and layout tags as single tokens."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
# Ordinary tokens, not special ones: decoding with skip_special_tokens must keep them for the rewards to read.
TAGS = (
    *("<reasoning>", "</reasoning>", "<answer>", "</answer>"),
    *("<start_working_out>", "<end_working_out>", "<SOLUTION>", "</SOLUTION>"),
    *("<think>", "</think>", "####"),
)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], *, size: int, context: int) -> PreTrainedTokenizerFast:
    """Learns at most `size` tokens, the tags and special tokens among them.

    AutoTokenizer reads every folder with a Qwen2 model as a Qwen2Tokenizer: it splits text that class's way and adds
    the class's unknown token. Both are made part of the file, so that all loaders see the same tokens.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in (PAD, START, END)])
    bpe.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(TAGS),
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=20,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    loaded_as = Qwen2Tokenizer().backend_tokenizer
    bpe.pre_tokenizer, bpe.normalizer = loaded_as.pre_tokenizer, loaded_as.normalizer
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        unk_token=PAD,  # bytes cover all text; never produced
        eos_token=END,
        additional_special_tokens=[START],
        padding_side="left",
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
