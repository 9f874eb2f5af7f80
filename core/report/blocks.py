"""Packs values and rollouts into compressed base64 blocks, which the page inflates on demand.

The index has numbers to filter and sort by, column after column; texts follow in blocks of 100,000 characters.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from grpo.core.record.agent_calls import KEY, agent_of, depths
from grpo.core.record.run_dir import read_rollouts
from grpo.core.record.trained import TrainedRow, read_trained
from grpo.core.report.index import Index
from grpo.core.report.public import public_row
from grpo.core.report.scan import Scan
from grpo.core.report.tokens import RunTokenizer

if TYPE_CHECKING:
    from grpo.core.check.diff import Change

BLOCK_SIZE = 100_000  # characters of texts that are compressed together
LEVEL = 9
PER_NAT = 100  # log-probabilities are whole hundredths of a nat
RATIO_PARTS = 10_000  # of a nat
LOWEST = -99.0
TOKEN_SIZE = 8  # characters
TOOLS = '"tool_calls"'
FILES = "files"
TokenValue = float | None  # a number of a token


@dataclass(frozen=True, slots=True)
class PackedRollouts:
    """The chosen rollouts of a run, M of them."""

    count: int  # M
    # name and type of each column of the index, in order; M numbers each, little-endian
    columns: Sequence[tuple[str, str]]
    index: str  # the block with the columns
    starts: Sequence[int]  # the place of the first rollout of each block of texts
    texts: Sequence[str]  # the blocks

    @property
    def length(self) -> int:
        return len(self.index) + sum(map(len, self.texts))


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, LEVEL)).decode("ascii")


def packed_json(value: Any) -> str:
    """Returns a value as a block; numbers that are not finite become null, halves of surrogates a question mark."""
    write = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain_or_text)
    try:
        text = write(value)
    except ValueError:  # a number is not finite
        text = write(_plain(value))
    return packed(text.encode("utf-8", "replace"))


def pack_rollouts(
    scan: Scan,
    places: Sequence[int],
    tokenizer: RunTokenizer,
    *,
    tokens: bool,
    changes: Sequence[Change] | None = None,
    public: bool = False,
    room: float = math.inf,
) -> PackedRollouts | None:
    """Packs rollouts, by ascending place; None beyond `room` characters. `public`: hide folders and secrets."""
    index = Index(scan, changes)
    texts = _Texts(tokenizer, tokens)
    for step, own in groupby(places, key=lambda place: scan.step[place]):
        chosen = list(own)
        numbers = [scan.number[place] for place in chosen]
        trained = read_trained(scan.run, step) if tokens else {}
        rows = read_rollouts(scan.run, step, tokens=tokens, numbers=numbers)
        for place, number, row in zip(chosen, numbers, rows, strict=True):
            index.add(place, step, number, row)
            texts.add(public_row(row) if public else row, scan.rewards, trained.get(number))
        if texts.length > room:
            return None
    columns, data = index.written()
    starts, blocks = texts.written()
    made = PackedRollouts(len(places), columns, packed(data), starts, blocks)
    return made if made.length <= room else None


def pack_texts(
    rows: Iterable[tuple[Mapping[str, Any], TrainedRow | None]], tokenizer: RunTokenizer, rewards: Iterable[str]
) -> str:
    """Packs the texts of a few rollouts, with their tokens, as one block."""
    texts = _Texts(tokenizer, tokens=True, block_size=math.inf)
    for row, trained in rows:
        texts.add(row, rewards, trained)
    _, [block] = texts.written()
    return block


@dataclass(slots=True)
class _Texts:
    """Texts of rollouts in blocks; what the members of a group share is in each once."""

    tokenizer: RunTokenizer
    tokens: bool
    block_size: float = BLOCK_SIZE
    _starts: list[int] = field(default_factory=list)
    _blocks: list[str] = field(default_factory=list)
    _rollouts: list[list[Any]] = field(default_factory=list)
    _shared: dict[str, int] = field(default_factory=dict)
    _prompts: dict[str, str | None] = field(default_factory=dict)
    _pieces: dict[str, int] = field(default_factory=dict)
    _size: int = 0
    _count: int = 0
    length: int = 0  # characters of the blocks that are written

    def add(self, row: Mapping[str, Any], rewards: Iterable[str], trained: TrainedRow | None) -> None:
        if not self._rollouts:
            self._starts.append(self._count)
        outcomes = [[row.get(f"score.{name}"), row.get(f"reason.{name}")] for name in rewards]
        prompt, columns = row["prompt"], row["columns"]
        episode, info = split_info(row["info"])
        if prompt not in self._prompts:
            # Schemas of tools stood in the prompt, and no record has them; an agent makes prompts of its own.
            other = episode is not None or TOOLS in (info or "")
            self._prompts[prompt] = None if other else self.tokenizer.rendered(prompt)
        ids = [self._share(prompt), self._share(columns)]
        texts = (row["completion"], row["messages"], info)
        turns = (row["turn_rewards"], row["turn_advantages"])
        self._rollouts.append([*ids, *texts, outcomes, *turns, self._tokens(row, trained), episode, row["why"]])
        self._size += sum(len(row[name] or "") for name in ("completion", "messages", "info"))
        self._count += 1
        if self._size >= self.block_size:
            self._close()

    def written(self) -> tuple[list[int], list[str]]:
        if self._rollouts:
            self._close()
        return self._starts, self._blocks

    def _tokens(self, row: Mapping[str, Any], trained: TrainedRow | None) -> list[list[TokenValue] | None] | None:
        """Returns the tokens, by their places among the pieces of the block, with three numbers for each.

        These are its log-probability, in hundredths of a nat (None: unknown); by how much more probable the trained
        policy found it, in ten-thousandths, and its advantage (None: not trained on).
        """
        if not (self.tokens and row["token_ids"] and row["logprobs"]):
            return None
        pieces = self.tokenizer.pieces(row["token_ids"])
        if pieces is None:
            return None
        self._size += TOKEN_SIZE * len(pieces)
        places: list[TokenValue] = [self._pieces.setdefault(piece, len(self._pieces)) for piece in pieces]
        logprobs: list[TokenValue] = [_hundredths(value) for value in row["logprobs"]]
        if trained is None:
            return [places, logprobs, None, None]
        ratios: list[TokenValue] = [round(RATIO_PARTS * value) for value in trained.log_ratios]
        return [places, logprobs, ratios, [float(f"{value:.4g}") for value in trained.advantages]]

    def _share(self, text: str) -> int:
        if text not in self._shared:
            self._shared[text] = len(self._shared)
            self._size += len(text)
        return self._shared[text]

    def _close(self) -> None:
        prompts = {text: self._prompts[text] for text in self._shared if text in self._prompts}
        earlier = [prompts.get(text) for text in self._shared]
        pieces = list(self._pieces)
        block = {"shared": list(self._shared), "seen": earlier, "pieces": pieces, "rollouts": self._rollouts}
        self._blocks.append(packed_json(block))
        self.length += len(self._blocks[-1])
        self._rollouts, self._shared, self._prompts, self._pieces, self._size = [], {}, {}, {}, 0


def split_info(info: str | None) -> tuple[dict[str, Any] | None, str | None]:
    """Returns the episode in an info, without token ids, and the rest of the info; None for one of no agent.

    Each call has a `depth` too, by which branches are indented, and the episode the files that changed.
    """
    if info is None or f'"{KEY}"' not in info:
        return None, info
    try:
        value = json.loads(info)
    except (ValueError, RecursionError):
        return None, info
    record = agent_of(value) if isinstance(value, dict) else None
    if record is None:
        return None, info
    calls = [asdict(replace(call, new_ids=(), ids=())) for call in record.tree]
    tree = [{**call, "depth": depth} for call, depth in zip(calls, depths(record.tree), strict=True)]
    files = value.get(FILES)
    named = files.items() if isinstance(files, dict) else ()
    changed = {name: text for name, text in named if text is None or isinstance(text, str)}
    episode = {**asdict(replace(record, tree=())), "tree": tree, FILES: changed}
    return episode, json.dumps({name: own for name, own in value.items() if name not in (KEY, FILES)})


def _hundredths(nats: float | None) -> int | None:
    return None if nats is None or math.isnan(nats) else round(PER_NAT * min(max(nats, LOWEST), 0.0))


def _plain_or_text(value: Any) -> Any:
    return _plain(value) if isinstance(value, Mapping) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
