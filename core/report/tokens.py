"""Decodes what the policy read and wrote, token by token, with its own tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpo.core.policy.load import load_tokenizer
from grpo.core.record.checkpoint import checkpoints_of
from grpo.core.record.run_dir import RunDir
from grpo.core.report.template import Renderer
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZER = "tokenizer_config.json"
WORD_START = "\u2581"
MOST_TOKENS = 2**31  # an id beyond is none, and no tokenizer takes it
_RENDERER = Renderer()


class RunTokenizer:
    """The tokenizer in a run's directory; no other place is asked."""

    def __init__(self, run: RunDir) -> None:
        self.missing: str | None = None
        self._tokenizer = self._loaded(run)
        self._pieces: dict[int, str] = {}

    def rendered(self, prompt: str) -> str | None:
        """Returns the text that the model read for a prompt, which is chat messages as JSON."""
        if self._tokenizer is None:
            return None
        try:
            template = self._tokenizer.get_chat_template()
            return _RENDERER.rendered(template, json.loads(prompt), self._tokenizer.special_tokens_map)
        except (ValueError, TypeError, RecursionError, OSError) as error:  # the messages may be anything, too
            self.missing = f"the chat template failed: {error}"
            return None

    def pieces(self, token_ids: Iterable[int]) -> list[str] | None:
        """Returns the text of each token, half a character as U+FFFD; None without a tokenizer."""
        if self._tokenizer is None:
            return None
        return [self._piece(self._tokenizer, token) for token in token_ids]

    def _piece(self, tokenizer: PreTrainedTokenizerBase, token: int) -> str:
        if not 0 <= token < MOST_TOKENS:
            return "\ufffd"
        if token not in self._pieces:
            text = str(tokenizer.decode([token], clean_up_tokenization_spaces=False))
            # A tokenizer of SentencePiece's kind drops the space before the first word of a text.
            spaced = str(tokenizer.convert_ids_to_tokens(token)).startswith(WORD_START) and not text.startswith(" ")
            self._pieces[token] = f" {text}" if spaced else text
        return self._pieces[token]

    def _loaded(self, run: RunDir) -> PreTrainedTokenizerBase | None:
        folder = next(_folders(run), None)
        if folder is None:
            self.missing = "the run has left no tokenizer yet"
            return None
        try:
            return load_tokenizer(str(folder))
        except UsageError as error:
            self.missing = str(error)
            return None


def _folders(run: RunDir) -> Iterator[Path]:
    checkpoints = checkpoints_of(run.checkpoints)
    for folder in (run.model, *checkpoints, run.warmup, run.base):
        if (folder / TOKENIZER).is_file():
            yield folder
