"""Questions about a network."""

import pytest
import torch
from torch import nn

from deelbo._modules import check_memory, check_replicated, eval_mode, select, trainable, unwrap
from shared.cases import Net


def test_wrappers_are_seen_through():
    net = Net()
    assert unwrap(net) is net
    assert unwrap(nn.DataParallel(net)) is net
    assert unwrap(nn.DataParallel(torch.compile(net))) is net
    assert list(trainable(torch.compile(net))) == [name for name, _ in net.named_parameters()]


def test_every_module_gets_its_own_mode_back():
    net = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2), nn.Linear(2, 2))
    net[1].eval()
    with eval_mode(net):
        assert not any(module.training for module in net.modules())
    assert [module.training for module in net] == [True, False, True]
    with pytest.raises(ZeroDivisionError), eval_mode(net):
        raise ZeroDivisionError
    assert [net.training, *(module.training for module in net)] == [True, True, False, True]


def test_trainable_leaves_frozen_and_tied_weights_out():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    net[0].requires_grad_(False)
    net[2] = net[1]
    assert list(trainable(net)) == ["1.weight", "1.bias"]
    net.requires_grad_(False)
    with pytest.raises(ValueError, match="Sequential has no parameter with requires_grad=True"):
        trainable(net)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_that_would_swallow_the_noise_are_refused(dtype):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to(dtype))
    with pytest.raises(ValueError, match=rf'"1.weight" is {str(dtype).split(".")[1]}, whose rounding swallows noise'):
        trainable(net)
    if dtype == torch.bfloat16:
        assert len(trainable(net, bfloat16=True)) == 4
    else:
        with pytest.raises(ValueError, match=r'"1.weight" is float16, in which small gradients become zero'):
            trainable(net, bfloat16=True)


def test_weights_without_a_shape_are_refused():
    with pytest.raises(ValueError, match='"weight" has no shape yet: run one batch'):
        trainable(nn.LazyLinear(2))


def test_weights_sharded_by_other_libraries_are_refused():
    class FullyShardedDataParallel(nn.Sequential):
        """A module with the name of PyTorch's, which needs a GPU."""

    with pytest.raises(ValueError, match=r'module "1" is sharded by .*FSDP1.*DDP.*fully_shard'):
        check_replicated(nn.Sequential(nn.Linear(2, 2), FullyShardedDataParallel(nn.Linear(2, 2))))
    part = nn.Linear(2, 2)
    part.weight.ds_id = 0  # DeepSpeed's mark
    with pytest.raises(ValueError, match=r'"weight" is sharded \(DeepSpeed ZeRO-3\).*DDP.*fully_shard'):
        trainable(part)


def test_weights_need_memory_of_their_own():
    buffer = torch.zeros(10)
    apart = {"a": nn.Parameter(buffer[:5]), "b": nn.Parameter(buffer[5:])}
    check_memory(apart)
    with pytest.raises(ValueError, match='parameters "a" and "b" share memory'):
        check_memory({"a": nn.Parameter(buffer[:6]), "b": nn.Parameter(buffer[5:])})
    with pytest.raises(ValueError, match='parameter "gaps"'):
        check_memory({"gaps": nn.Parameter(buffer[::2])})
    check_memory({name: nn.Parameter(torch.zeros(4, device="meta")) for name in "ab"})


def test_prefixes_match_whole_components():
    names = ["fc.weight", "fc1.weight", "body.fc.weight", "fc"]
    assert select(names, ["fc"]) == ["fc.weight", "fc"]
    assert select(names, iter(["body", "fc1.weight"])) == ["fc1.weight", "body.fc.weight"]
    assert select(names, []) == []
