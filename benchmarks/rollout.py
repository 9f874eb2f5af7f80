"""Turns per second of rollouts that call a tool, beside TRL's `environment_factory`, in one run.

    python benchmarks/rollout.py [--environments 64] [--turns 4] [--rounds 5] [--tool-seconds 0] [--model DIR]

Both sides play the same episodes of the same environment (groups of 8) with the same model, sampled by transformers on
this machine: every turn calls the environment's one tool, until the turns are used up. What a policy would write is not
left to chance: after the forward pass the logits are set so that each turn is `--words` tokens, a call and the end
token. All else is real: forward passes, sampling, reading the calls, making them, and the tokens of the answers. The
sides take turns; a side's figure is the median of its rounds. `outside` is what a turn costs beside generation.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import gymnasium

WORDS = "abcdefghijklmnopqrstuvwxyz"
CALL = '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'
QUESTION = "Look at number {}, again and again."
GROUP = 8  # environments that are asked the same
ROOM = 40  # tokens of an answer with its template


class Looking:
    """The environment, as TRL takes it: its method is the tool."""

    seconds = 0.0
    made = count()

    def __init__(self) -> None:
        self.number = next(self.made)

    def reset(self, **_: Any) -> None:
        self.looks = 0

    def look(self, at: str) -> str:
        """Looks at something.

        Args:
            at: at what.
        """
        time.sleep(self.seconds)
        self.looks += 1
        return f"It was looked at {self.looks} times in room {self.number % 1000:03}."


class Looked(gymnasium.Env[str, str]):
    """The same environment, as we take it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = Looking()
        self.state.reset()
        self.tools = [self.state.look]
        return QUESTION.format((seed or 0) // GROUP), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 0.0, True, False, {}


@dataclass
class Clock:
    """Seconds spent in generation, within the seconds of everything."""

    total: list[float] = field(default_factory=list)
    generation: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)

    @contextmanager
    def measured(self) -> Iterator[None]:
        self.generation.append(0.0)
        started = time.perf_counter()
        yield
        self.total.append(time.perf_counter() - started)

    @contextmanager
    def generating(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.generation[-1] += time.perf_counter() - started

    def speed(self) -> float:
        return statistics.median(turns / total for turns, total in zip(self.turns, self.total, strict=True))

    def outside(self) -> float:
        rounds = zip(self.turns, self.total, self.generation, strict=True)
        return statistics.median((total - generation) / turns for turns, total, generation in rounds)


def policy(options: argparse.Namespace) -> tuple[Any, Any]:
    """Returns a model that calls the tool in every turn, and its tokenizer."""
    from grpo.core.policy.load import load_model, load_tokenizer, policy_source

    source = policy_source(options.model).path
    tokenizer, model = load_tokenizer(source), load_model(source, "float32")
    tokenizer.add_tokens([CALL])
    call = tokenizer.convert_tokens_to_ids(CALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.resize_token_embeddings(max(call + 1, model.config.vocab_size))
    asked = tokenizer.apply_chat_template([{"role": "user", "content": ""}], add_generation_prompt=True)
    words = [tokenizer.convert_tokens_to_ids(letter) for letter in WORDS[: options.words]]
    chain = [asked["input_ids"][-1], *words, call, tokenizer.eos_token_id]
    following = dict(pairwise(chain))

    def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        module.last = [following.get(token) for token in given[:, -1].tolist()]

    def force(module: Any, args: tuple[Any, ...], logits: Any) -> Any:
        for row, token in enumerate(model.last):
            if token is not None:
                logits[row, -1, token] = 1e4
        return logits

    model.register_forward_pre_hook(note, with_kwargs=True)
    model.get_output_embeddings().register_forward_hook(force)
    return model.eval(), tokenizer


def ours(options: argparse.Namespace, model: Any, tokenizer: Any) -> tuple[Clock, Callable[[], None]]:
    """Returns a clock, and what plays one round."""
    from grpo.core.config.settings import RolloutSettings
    from grpo.core.env.episodes import episodes_of
    from grpo.core.env.prompts import encode_episodes
    from grpo.core.policy.load import end_ids
    from grpo.core.rollout.hf.sampler import HfRollouts
    from grpo.core.rollout.players import player_of
    from grpo.core.rollout.types import Sampled, SamplingParams
    from grpo.plugins._spec.binding import BoundEnv
    from grpo.plugins.specs import EnvSpec

    env = BoundEnv(EnvSpec("looking", 1, Looked, max_turns=options.turns), "benchmark")
    episodes = episodes_of(env, "train", limit=options.environments, unbounded=1)
    turn = options.words + 8
    section = RolloutSettings(
        max_completion_length=turn, max_turns=options.turns, max_rollout_length=options.turns * (turn + ROOM)
    )
    player = player_of(env, section, tokenizer, episodes)
    assert player is not None
    params = SamplingParams(turn, end_ids(tokenizer, model), tokenizer.pad_token_id)
    clock, rollouts = Clock(), HfRollouts()
    rollouts.sync(model)

    def play() -> None:
        turns = rollouts.turns()

        def sample(prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
            with clock.generating():
                return turns(prompts, params)

        with clock.measured():
            played = player.play(episodes, encode_episodes(tokenizer, episodes), sample, params)
        clock.turns.append(sum(one.completion.turns for one in played))

    return clock, play


def theirs(options: argparse.Namespace, model: Any, tokenizer: Any, out: Path) -> tuple[Clock, Callable[[], None]]:
    """Returns a clock, and what plays one round."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    clock = Clock()

    class Timed(GRPOTrainer):  # type: ignore[misc]
        def _generate(self, prompts: Any) -> Any:
            with clock.measured():
                generated = super()._generate(prompts)
            messages = [sum(one["role"] == "assistant" for one in completion) for completion in generated[3]]
            clock.turns.append(sum(messages))
            return generated

        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            with clock.generating():
                return super()._generate_single_turn(*args, **kwargs)

    asked = [QUESTION.format(number // GROUP) for number in range(options.environments)]
    rows = Dataset.from_dict({"prompt": [[{"role": "user", "content": text}] for text in asked]})
    trainer = Timed(
        model=model,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=GRPOConfig(
            output_dir=str(out),
            per_device_train_batch_size=options.environments,
            num_generations=GROUP,
            max_completion_length=options.turns * (options.words + 8 + ROOM),
            max_tool_calling_iterations=options.turns - 1,
            report_to=[],
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=rows,
        processing_class=tokenizer,
        environment_factory=Looking,
    )

    def play() -> None:
        trainer._generate_and_score_completions(list(rows))

    return clock, play


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--words", type=int, default=12, help="tokens of a turn before its call, at most 26")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tool-seconds", type=float, default=0.0, help="how long the tool takes")
    parser.add_argument("--model", default=None)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    Looking.seconds = options.tool_seconds
    model, tokenizer = policy(options)
    with tempfile.TemporaryDirectory() as folder:
        sides = {"grpo": ours(options, model, tokenizer), "TRL": theirs(options, model, tokenizer, Path(folder))}
        for _ in range(options.rounds + 1):  # the first round is thrown away
            for _, play in sides.values():
                play()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}")
    print(f"{options.environments} environments, {options.turns} turns of {options.words + 2} tokens")
    print(f"{'':<7}{'turns/s':>10}{'outside, ms/turn':>19}")
    for name, (clock, _) in sides.items():
        clock.turns, clock.total, clock.generation = clock.turns[1:], clock.total[1:], clock.generation[1:]
        print(f"{name:<7}{clock.speed():>10.1f}{1000 * clock.outside():>19.2f}")
        if set(clock.turns) != {options.environments * options.turns}:
            sys.exit(f"{name} played {clock.turns} turns, not {options.environments} times {options.turns}")
    ratio = sides["grpo"][0].speed() / sides["TRL"][0].speed()
    print(f"{ratio:.2f} times the turns per second of TRL (median of {options.rounds} rounds)")


if __name__ == "__main__":
    main()
