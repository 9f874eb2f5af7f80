"""Reward functions in TRL's manner, run as they are: lists of completions and columns in, a list of scores out.

    grpo score --reward ./examples/trl_rewards.py:len_reward < rows.jsonl

Nothing here imports grpo; TRL's GRPOTrainer takes the same functions.
"""

from __future__ import annotations

import logging
from typing import Any


def len_reward(completions: list[list[dict[str, str]]], solution: list[str], **columns: Any) -> list[float]:
    """Pays short answers more than long ones of the same batch: from 0.5 for the shortest to -0.5 for the longest.

    Wrong answers earn nothing above 0. All lengths alike score 0, and a solution that cannot be read counts as
    answered. This is the length reward of Kimi k1.5 (arXiv:2501.12599), scored as open-r1's `len_reward` scores it: it
    compares all completions that it is given, so a batch should hold the completions of one prompt.
    """
    texts = [messages[0]["content"] for messages in completions]
    shortest, longest = min(map(len, texts)), max(map(len, texts))
    if shortest == longest:
        return [0.0] * len(texts)
    scores = []
    for text, gold in zip(texts, solution, strict=True):
        score = 0.5 - (len(text) - shortest) / (longest - shortest)
        scores.append(score if is_right(text, gold) else min(0.0, score))
    return scores


def is_right(text: str, gold: str) -> bool:
    """Compares the LaTeX of the answer with that of the solution; time is limited by whoever calls the reward."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    for module in ("math_verify.parser", "math_verify.grader"):  # they warn that their own time limits are off
        logging.getLogger(module).setLevel(logging.ERROR)
    known = parse(gold, [LatexExtractionConfig()], extraction_mode="first_match", parsing_timeout=None)
    if not known:
        return True
    rules = NormalizationConfig(basic_latex=True, units=True, malformed_operators=False, nits=False, boxed="all")
    config = LatexExtractionConfig(normalization_config=rules, boxed_match_priority=0, try_extract_without_anchor=False)
    found = parse(text, [config], extraction_mode="first_match", parsing_timeout=None)
    return bool(verify(found, known, timeout_seconds=None))
