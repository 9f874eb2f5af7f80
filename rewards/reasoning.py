"""Finds where the reasoning of a completion ends and its answer begins, for every verifier."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_NAMES = (
    r"(?:\w{1,20}[:_])?(?:think(?:ing)?|thoughts?|reason(?:ing)?|scratch_?pad|rationale|analysis|cot"
    r"|chain_of_thought|inner_thoughts|internal_monologue|monologue|(?:self_?)?reflections?|(?:self_?)?critique"
    r"|plan(?:ning)?|brainstorm(?:ing)?|deliberation|working(?:_out)?|draft)(?:_never_used_\w{1,40})?"
)
_ENDS = (
    (rf"</{_NAMES}\s?>", "most models: <think>, <thinking>, <reasoning>, <reflection>, <seed:think>, <longcat_think>"),
    (rf"\[/{_NAMES}\]", "Magistral: [THINK]"),
    (rf"\u25c1/{_NAMES}\u25b7", "Kimi: \u25c1think\u25b7"),
    (rf"<\|/{_NAMES}\|>", "<|think|>, closed as a tag"),
    (r"<\|(?:end_(?:of_)?(?:think(?:ing)?|thought|reasoning)|(?:think(?:ing)?|thought|reasoning)_end)\|>", "Cohere"),
    (r"<[|\uff5c]end\u2581of\u2581thinking[|\uff5c]>", "the same in the spelling of DeepSeek's tokens"),
    (r"<\|(?:start_response|begin_of_solution|start_of_solution)\|>", "Cohere, Sky-T1: where the answer begins"),
    (r"<end_working_out>", "the layout of Unsloth's notebooks"),
    (r"<channel\|>", "Gemma 4: <|channel>thought"),
    (r"<(?:unused|ctrl)95>", "Gemma: <unused94>thought"),
    (r"\[unused17\]", "Pangu: [unused16]"),
    (r"<\|channel\|>final\b[^<>\n]{0,40}(?:<\|constrain\|>[^<>\n]{0,40})?<\|message\|>", "gpt-oss"),
    (r"<\|content\|>", "Solar Open: <|end|><|begin|>assistant<|content|>"),
    (r"\[BEGIN FINAL RESPONSE\]", "Apriel"),
)
_END = lazy_pattern("|".join(form for form, _models in _ENDS), re.IGNORECASE)
_UNMARKED = (
    ("analysis", "assistantfinal"),  # gpt-oss, decoded without its special tokens
    ("Here is my thought process:", "Here is my response:"),  # Granite
)
"""How a text without marks opens its reasoning, and what then ends it."""


def reasoning_end(text: str) -> int:
    """Returns where the reasoning of a text ends: behind the last mark that ends one, 0 where there is none."""
    end = max((mark.end() for mark in _END.finditer(text)), default=0)
    for opening, closing in _UNMARKED:
        if closing in text and text.lstrip().startswith(opening):
            end = max(end, text.rfind(closing) + len(closing))
    return end
