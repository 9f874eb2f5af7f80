"""A step on a cluster, on paper: arithmetic that can be followed by hand, and what the command prints."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from command import grpo
from plain_shape import plain_shape

from grpo.core.planning.gpus import (
    CHANGED,
    Cluster,
    Gpu,
    Share,
    Work,
    device_of,
    gpu_of,
    known_gpu,
    place,
    whole_sync,
)
from grpo.core.planning.memory.budget import GIB
from grpo.plugins.errors import UsageError

KIB = 2**10
# A GiB of weights, as much of gradients and twice as much of optimizer; a KiB of cache for each token.
MODEL = plain_shape(KIB)
LARGE = replace(MODEL, parameters=16 * GIB, weights=32 * GIB, gradients=32 * GIB, optimizer=64 * GIB)
GPU = Gpu("plain", 80 * GIB, products=1e15, bandwidth=1e12, link=1e11, network=1e10)
WHOLE = Share(training=1.0, prefill=1.0, decoding=1.0, wire=1.0, round=0.0, exchange=0.0)
WORK = Work(prompts=8, group=8, prompt=1000, completion=1000)


def test_a_step_on_one_gpu_is_the_sum_of_what_can_be_worked_out_by_hand() -> None:
    placed = place(MODEL, WORK, Cluster(GPU, 1, 1, WHOLE))
    assert (placed.sharding, placed.split, placed.training, placed.sampling) == ("none", 1, 1, 1)
    # a round reads the weights and 64 sequences of 1,500 tokens; 8 prompts are read once for their group
    reading = 8 * 1000 * (2 * MODEL.parameters + 2 * 10 * 1000) / 1e15
    sampling = 1000 * (GIB + 64 * 1500 * KIB) / 1e12
    assert placed.seconds["sample"] == pytest.approx(reading + sampling)
    update = 64 * 2000 * 3 * (2 * MODEL.parameters + 2 * 10 * 2000) / 1e15
    assert placed.seconds["update"] == pytest.approx(update)
    assert placed.seconds["communicate"] == 0
    assert placed.sync_bytes == round(CHANGED * GIB)
    assert placed.step == pytest.approx(sum(placed.seconds.values()))


def test_gradients_travel_over_the_network_as_soon_as_there_are_two_machines() -> None:
    one, two = (place(MODEL, WORK, Cluster(GPU, nodes, 8 // nodes, WHOLE)) for nodes in (1, 2))
    assert one.seconds["communicate"] == pytest.approx(2 * 7 / 8 * GIB / GPU.link)
    assert two.seconds["communicate"] == pytest.approx(2 * 7 / 8 * GIB / GPU.network)
    assert one.seconds["update"] == pytest.approx(two.seconds["update"])


def test_a_policy_is_sharded_no_further_than_it_has_to_be() -> None:
    def sharding(gibs: int, nodes: int) -> str:
        gpu = replace(GPU, memory=gibs * GIB)
        return place(LARGE, WORK, Cluster(gpu, nodes, 8, WHOLE)).sharding

    assert sharding(150, 1) == "none"  # 128 GiB, and one engine in parts beside them
    assert sharding(80, 1) == "optimizer"  # 32 GiB of weights, 12 of an eighth of the rest
    assert sharding(40, 8) == "everything"
    with pytest.raises(UsageError, match="Take more nodes"):
        sharding(8, 1)


def test_what_is_given_to_servers_does_not_train_and_the_fastest_division_is_taken() -> None:
    cluster = Cluster(GPU, 4, 8, WHOLE)
    placed = place(MODEL, replace(WORK, apart=True), cluster)
    assert placed.training + placed.sampling == 32
    assert placed.sampling % 8 == 0
    longer = place(MODEL, replace(WORK, apart=True, completion=20_000), cluster)
    assert longer.sampling >= placed.sampling


def test_sampling_ahead_hides_the_shorter_of_the_two() -> None:
    plain, ahead = (place(MODEL, replace(WORK, ahead=on), Cluster(GPU, 1, 1, WHOLE)) for on in (False, True))
    hidden = min(plain.seconds["sample"], plain.seconds["update"])
    assert ahead.step == pytest.approx(plain.step - hidden)


def test_an_adapter_is_what_is_handed_over_where_an_adapter_trains() -> None:
    adapted = replace(MODEL, adapter=KIB, gradients=KIB, optimizer=2 * KIB)
    placed = place(adapted, replace(WORK, adapter=True), Cluster(GPU, 2, 8, WHOLE))
    assert placed.sync_bytes == KIB
    assert placed.seconds["sync"] == pytest.approx(KIB / GPU.bandwidth)


def test_all_weights_take_the_way_that_what_changed_takes() -> None:
    together, sharded = (
        place(LARGE, WORK, Cluster(replace(GPU, memory=gibs * GIB), 8, 8, WHOLE)) for gibs in (150, 40)
    )
    assert [one.sharding for one in (together, sharded)] == ["none", "everything"]
    for placed, wire in ((together, GPU.bandwidth), (sharded, GPU.network)):
        assert whole_sync(LARGE, placed) == pytest.approx(LARGE.parameters * LARGE.itemsize / wire)
        assert placed.seconds["sync"] == pytest.approx(CHANGED * whole_sync(LARGE, placed), rel=1e-3)


def test_names_of_gpus_are_read_as_people_write_them() -> None:
    assert known_gpu("rtx 4090") is gpu_of("RTX4090")
    assert known_gpu("80") is known_gpu("NVIDIA L40") is known_gpu("H100 94GB") is None
    makers = {
        "rtx-4090": "RTX4090",
        "NVIDIA GeForce RTX 4090": "RTX4090",
        "NVIDIA H100 80GB HBM3": "H100",
        "A100-80GB": "A100",
        "NVIDIA A100-SXM4-40GB": "A100-40",
        "NVIDIA L40S": "L40S",
    }
    for written, name in makers.items():
        assert known_gpu(written) is gpu_of(name)
    with pytest.raises(UsageError, match=r"H100.*--nodes|--nodes.*H100"):
        gpu_of("80")


def test_the_command_says_that_it_is_calculated_and_names_the_bottleneck() -> None:
    work = ("--model", "Qwen2.5-7B", "--context", "4096", "--nodes", "2", "--gpu", "H100", "--steps", "100")
    code, text, _ = grpo("plan", *work)
    assert code == 0
    assert text.startswith("calculated from published figures")
    assert "2 x 8 H100" in text
    assert "bottleneck: " in text
    assert "GPU-hours" in text
    code, text, _ = grpo("plan", *work, "--json")
    read = json.loads(text)
    assert read["calculated"] is True
    assert set(read["seconds"]) == {"sample", "update", "communicate", "sync"}


def test_memory_alone_says_nothing_about_a_step() -> None:
    code, _, told = grpo("plan", "--model", "Qwen2.5-7B", "--context", "4096", "--nodes", "2", "--gpu", "80")
    assert code == 2
    assert "H100" in told


@pytest.mark.parametrize("machines", [("--nodes", "2", "--gpu", "H100"), ("--gpu", "80")])
def test_completions_that_leave_no_room_for_a_prompt_are_refused_and_not_shortened(
    machines: tuple[str, ...] | tuple[str, str],
) -> None:
    asked = ("--model", "Qwen2.5-7B", "--max-completion-length", "3072", *machines)
    code, out, told = grpo("plan", *asked)
    assert (code, out) == (2, "")
    assert "no room for a prompt in 2048 tokens" in told
    assert "--context" in told
    code, out, _ = grpo("plan", *asked, "--context", "4096")
    assert code == 0


def test_a_gpu_goes_by_its_name_or_its_memory() -> None:
    assert device_of("rtx 4090").total == device_of("24GB").total == 24 * GIB
    with pytest.raises(
        UsageError, match=r"--gpu 'H1000' is not an amount of memory.* Did you mean 'H100'\? Known by name: B200, "
    ):
        device_of("H1000")
