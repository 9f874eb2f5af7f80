"""A tiny random policy, small runs that trained it, and a browser: made once for all tests of the engine."""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from disturbed_ranks import Ranks
from small_run import small_run

if TYPE_CHECKING:
    from firefox import Firefox
    from playwright.sync_api import Browser
    from rollout_server import Server

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REWARDS = '''
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def vowels(completion: str) -> float:
    """The share of vowels."""
    return sum(letter in "aeiou" for letter in completion) / max(len(completion), 1)
'''


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums in the order of the processes that tests start: those have one thread, for bitwise equal metrics."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    """Two rollout servers with the real vLLM."""
    from rollout_server import Server

    running = [Server(), Server()]
    for server in running:
        server.wait()
    yield running
    for server in running:
        assert server.stop() == 0


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for one module: while it is open, an event loop runs in this thread, and no other one can."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=False, args=["--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    from firefox import firefox_command, started_firefox

    command = firefox_command()
    assert command is not None
    with started_firefox(command, tmp_path_factory.mktemp("firefox")) as tab:
        yield tab


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Qwen2 of 0.4 M parameters with a chat tokenizer of 400 tokens; the same every time."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config

    from grpo.envs.datasets.word_problems import generate

    special = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = (row["question"] + row["answer"] for row in generate(200, seed=1))
    bpe.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=special[0],
        eos_token=special[2],
        unk_token=special[0],  # unnamed, transformers adds a token of its own that the model has no embedding for
        padding_side="left",
    )
    tokenizer.chat_template = TEMPLATE
    config = Qwen2Config(
        vocab_size=400,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=128,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        initializer_range=0.1,  # enough for greedy completions that differ from prompt to prompt
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    folder = tmp_path_factory.mktemp("tiny") / "model"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tied_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy with its head tied to the embedding, as most small models have it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    folder = tmp_path_factory.mktemp("tied") / "model"
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def vowels(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SPEC of a reward that tells random texts apart."""
    file = tmp_path_factory.mktemp("rewards") / "mine.py"
    file.write_text(REWARDS, encoding="utf-8")
    return f"{file}:vowels"


@pytest.fixture(scope="session")
def full_run(tiny_model: Path, vowels: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two steps that trained all weights."""
    return _run(tiny_model, vowels, tmp_path_factory.mktemp("runs") / "full")


@pytest.fixture(scope="session")
def lora_run(tiny_model: Path, vowels: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two steps that trained an adapter."""
    return _run(tiny_model, vowels, tmp_path_factory.mktemp("runs") / "lora", lora={"enabled": True, "rank": 4})


def _run(model: Path, reward: str, out: Path, **settings: Any) -> Path:
    small_run(
        out,
        env="gsm8k:size=40",
        rewards=[reward],
        model=str(model),
        train={"group_size": 2, "lr": 0.01},
        rollout={"max_completion_length": 16},
        evaluation={"size": 4},
        output={"save_every": 1},
        **settings,
    )
    return out


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A cluster of two nodes in processes of this machine, with a token: Ray's own `Cluster`."""
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(16))
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH"):
        os.environ.pop(name, None)
    from ray.cluster_utils import Cluster  # reads them

    cluster = Cluster()
    busy = {"health_check_timeout_ms": 120_000, "worker_niceness": 0}  # a busy machine is not a dead node
    _added(cluster, include_dashboard=False, _system_config=busy)
    _added(cluster)
    yield cluster
    cluster.shutdown()
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


def _added(cluster: Any, **settings: Any) -> Any:
    """Adds a node of two processors, in another try where this machine is too busy for Ray's own limit of 30 s."""
    for left in (2, 1, 0):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves the files of its logs to the collector
                return cluster.add_node(**{"num_cpus": 2, "object_store_memory": 100 * 2**20, **settings})
        except Exception:
            if not left:
                raise
    raise AssertionError


@pytest.fixture(scope="session")
def ray_address(ray_cluster: Any) -> str:
    """Where the cluster of two nodes is."""
    address: str = ray_cluster.address
    return address


@pytest.fixture
def further_node(ray_cluster: Any) -> Iterator[Callable[[int], Callable[[], None]]]:
    """Adds a third node of so many processors, and returns what removes it, which happens at the end in any case."""
    there: list[Any] = []

    def remove() -> None:
        while there:
            ray_cluster.remove_node(there.pop(), allow_graceful=False)

    def add(processors: int) -> Callable[[], None]:
        there.append(_added(ray_cluster, num_cpus=processors))
        return remove

    yield add
    remove()
    ray_cluster.wait_for_nodes()  # Ray goes on listing it for a while


@pytest.fixture(scope="session")
def vllm_installed() -> None:
    """Fails the test where vLLM is missing or of another release; it runs there only with GRPO_REQUIRE_VLLM set."""
    from grpo.core.rollout.engine.release import refuse_missing_vllm

    refuse_missing_vllm()


@pytest.fixture
def ranks() -> Iterator[list[Ranks]]:
    """A list for runs that are disturbed, which are ended with the test."""
    started: list[Ranks] = []
    yield started
    for one in started:
        one.stop()
