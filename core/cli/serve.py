"""Runs `grpo serve-rollouts`: serves rollouts by vLLM until it is stopped."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grpo.core.cli.options import AT_LEAST_ONE
from grpo.core.config.defaults import SERVER_PORT
from grpo.core.rollout.server.capabilities import TOKEN
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.config.schema import RunConfig
    from grpo.core.rollout.server.capabilities import ServerCapabilities
    from grpo.core.rollout.server.serve import RolloutServer


@click.command(name="serve-rollouts")
@click.option("--model", metavar="NAME", help="Hub id, folder or run directory. Default: the embedded model.")
@click.option("--lora", "lora", is_flag=True, help="Serve adapters of rank 16, or --lora-rank.")
@click.option("--lora-rank", type=AT_LEAST_ONE, help="Serve adapters up to this rank.")
@click.option("--lora-targets", metavar="A,B", help="Adapted modules. Default: all linear layers.")
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Data type. Default: as in grpo run."
)
@click.option("--context", type=AT_LEAST_ONE, help="Tokens of prompt and completion. Default: the model's limit.")
@click.option("--raw-logprobs", is_flag=True, help="Needed for runs with rollout.top_p, top_k or min_p.")
@click.option(
    "--memory-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.9,
    help="Share of the GPU's memory. Default: 0.9.",
)
@click.option("--tensor-parallel", type=AT_LEAST_ONE, default=1, help="Devices that share each layer. Default: 1.")
@click.option("--host", default="127.0.0.1", help=f"Address to listen on. Beyond loopback it needs {TOKEN}.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=SERVER_PORT, help=f"Port. Default: {SERVER_PORT}; 0: any free one."
)
def serve_rollouts(
    model: str | None,
    lora: bool,
    lora_rank: int | None,
    lora_targets: str | None,
    dtype: str | None,
    context: int | None,
    raw_logprobs: bool,
    memory_share: float,
    tensor_parallel: int,
    host: str,
    port: int,
) -> None:
    """Start vLLM as a rollout server for `grpo run --rollout vllm-server`.

    The weights come from the run, so one server serves any run of the same model, one at a time. With a run directory
    as
    --model it is the server that this run needs.
    """
    from grpo.core.config.defaults import dtype_of
    from grpo.core.rollout.engine.release import refuse_missing_vllm
    from grpo.core.rollout.server.capabilities import card_of_model, largest_frame, logprobs_of, refuse_unsplittable
    from grpo.core.rollout.server.serve import RolloutServer, refuse_open

    token = os.environ.get(TOKEN) or None
    refuse_open(host, token)
    refuse_missing_vllm()
    chosen, source = _chosen(model)
    if lora_rank is None and (lora or (chosen.lora.enabled and chosen.rollout.lora_sync != "folded")):
        lora_rank = chosen.lora.rank
    targets = lora_targets.split(",") if lora_targets else chosen.lora.targets
    card = card_of_model(
        source,
        dtype=dtype or dtype_of(chosen.train.dtype, chosen.model),
        context=context,
        raw_logprobs=raw_logprobs or bool(logprobs_of(chosen)),
        rank=lora_rank,
        targets=targets,
    )
    refuse_unsplittable(source, tensor_parallel)
    try:
        server = RolloutServer((host, port), token, largest_frame(source))
    except OSError as error:
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror}. Choose another --port.") from None
    click.echo(f"loading {card.model}", err=True)
    _serve(server, card, memory_share, tensor_parallel, host)


def _serve(
    server: RolloutServer, card: ServerCapabilities, memory_share: float, tensor_parallel: int, host: str
) -> None:
    import torch

    from grpo.core.rollout.engine.release import vllm_version
    from grpo.core.rollout.engine.vllm import EngineSettings, ShardedEngine, VllmEngine

    engine = (VllmEngine if tensor_parallel == 1 else ShardedEngine)(
        EngineSettings(
            model=card.model,
            dtype=card.dtype,
            context=card.context,
            raw_logprobs=bool(card.raw_logprobs),
            memory_share=memory_share,
            lora_rank=card.lora_rank,
            lora_modules=card.lora_modules,
            tensor_parallel=tensor_parallel,
        )
    )

    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # the second time at once
        server.stop()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        card = replace(card, block=engine.block, vllm=vllm_version() or "", workers=tensor_parallel, device=device)
        url = f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
        adapters = f"adapters up to rank {card.lora_rank}" if card.lora_rank else "no adapters"
        click.echo(f"serving {card.model} on {url} ({card.dtype}, {card.context} tokens, {adapters})")
        click.echo(f"train with: grpo run ... --rollout vllm-server --server-url {url}")
        server.serve(engine, card)
    finally:
        engine.close()


def _chosen(model: str | None) -> tuple[RunConfig, str]:
    from grpo.core.config.schema import RunConfig
    from grpo.core.policy.load import policy_source
    from grpo.core.policy.weights import run_config
    from grpo.core.record.run_dir import is_run, open_run_dir

    if model is not None and is_run(Path(model).expanduser()):
        config = run_config(open_run_dir(Path(model).expanduser()))
        return config, policy_source(config.model).path
    return RunConfig(env="", model=model), policy_source(model).path
