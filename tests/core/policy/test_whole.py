"""Whole tensors of a policy, whatever wraps it; several processes: tests/core/train/test_sharded.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from grpo.core.config.sections import LoraSection
from grpo.core.policy.load import load_policy
from grpo.core.policy.whole import changed_weights, fsdp_groups, full_tensors, is_sharded, unsharded, whole_state


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_every_parameter_comes_whole_under_its_own_name(tiny_model: Path) -> None:
    policy = load_policy(str(tiny_model), "float32", LoraSection())
    due = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    wrapped = DistributedDataParallel(policy)
    torch.testing.assert_close(dict(full_tensors(wrapped)), due, rtol=0, atol=0)
    assert not is_sharded(wrapped)
    sharded = load_policy(str(tiny_model), "float32", LoraSection())
    for layer in sharded.model.layers:
        fully_shard(layer)
    fully_shard(sharded)
    assert is_sharded(sharded)
    torch.testing.assert_close(dict(full_tensors(sharded)), due, rtol=0, atol=0)


@pytest.mark.usefixtures("alone")
def test_weights_stay_whole_for_any_number_of_passes_and_are_sharded_again(tiny_model: Path) -> None:
    policy = load_policy(str(tiny_model), "float32", LoraSection())
    ids = torch.arange(3, 9)[None]
    expected = policy(input_ids=ids).logits.detach()
    for layer in policy.model.layers:
        fully_shard(layer)
    fully_shard(policy)
    policy(input_ids=ids).logits.sum().backward()
    groups = [group for module in (policy, *policy.model.layers) for group in fsdp_groups(module)]
    before = [group.post_forward_mesh_info for group in groups]
    with torch.no_grad(), unsharded(policy):
        for _ in range(3):
            torch.testing.assert_close(policy(input_ids=ids).logits, expected)
            assert not is_sharded(policy)
    assert all(hasattr(parameter, "full_tensor") for parameter in policy.parameters())
    assert [group.post_forward_mesh_info for group in groups] == before
    policy(input_ids=ids).logits.sum().backward()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("keeps_whole", [False, True])
def test_changed_weights_of_shards_are_computed_with_and_leave_nothing_behind(
    tiny_model: Path, keeps_whole: bool
) -> None:
    """Also where the weights of the outermost module stay whole after a forward pass."""
    policy = load_policy(str(tiny_model), "float32", LoraSection())
    plain = load_policy(str(tiny_model), "float32", LoraSection())
    ids = torch.arange(3, 9)[None]
    name = "model.embed_tokens.weight"
    for layer in policy.model.layers:
        fully_shard(layer)
    fully_shard(policy, reshard_after_forward=not keeps_whole)
    with torch.no_grad():
        before = policy(input_ids=ids).logits
        with changed_weights(policy, {name: lambda whole: whole * 2, "model.norm.weight": lambda whole: whole + 1}):
            dict(plain.named_parameters())[name].mul_(2)
            plain.model.norm.weight.add_(1)
            torch.testing.assert_close(policy(input_ids=ids).logits, plain(input_ids=ids).logits)
            for each, tensor in full_tensors(policy):
                torch.testing.assert_close(tensor, dict(plain.named_parameters())[each])
                tensor.numpy()  # as fingerprints are made
        assert torch.equal(policy(input_ids=ids).logits, before)
        assert not torch.equal(plain(input_ids=ids).logits, before)
    policy(input_ids=ids).logits.sum().backward()  # FSDP can still free what it puts together


def test_an_adapters_state_leaves_its_base_where_it_is(tiny_model: Path) -> None:
    policy = load_policy(str(tiny_model), "bfloat16", LoraSection(enabled=True, rank=4))
    found = whole_state(policy, {}, keep=True)
    assert found.keys() == {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
    name = next(iter(found))
    assert whole_state(policy, {name: torch.float16}, keep=True)[name].dtype == torch.float16
    assert whole_state(policy, {}, keep=False) == {}
