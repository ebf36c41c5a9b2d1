"""The prior of low-rank adapters."""

import pytest
import torch
from torch import nn

from deelbo import priors

peft = pytest.importorskip("peft")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.classifier = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.classifier(self.body(x).tanh())


def adapted(**options):
    torch.manual_seed(0)
    return peft.get_peft_model(Net(), peft.LoraConfig(r=2, target_modules=["body"], **options))


def test_means_are_where_the_change_is_zero():
    model = adapted(modules_to_save=["classifier"])
    prior = priors.adapters(model)
    groups = prior.named_groups()
    assert {name: group.num_params for name, group in groups.items()} == {"lora_A": 12, "lora_B": 10, "head": 18}
    a = next(p for name, p in model.named_parameters() if "lora_A" in name)
    start = a.detach().clone()
    assert start.abs().sum() > 0
    a.data += 1
    assert groups["lora_A"].quadratic()[0] == pytest.approx(12)  # from its start
    assert groups["lora_B"].quadratic()[0] == 0  # from zero, where it is
    classifier = [p for name, p in model.named_parameters() if "modules_to_save" in name]
    assert groups["head"].quadratic()[0] == pytest.approx(sum(float(p.detach().square().sum()) for p in classifier))


def test_what_else_is_trained_is_around_its_start():
    model = adapted(use_dora=True)
    groups = priors.adapters(model).named_groups()
    assert sorted(groups) == ["lora_A", "lora_B", "other"]
    assert groups["other"].quadratic()[0] == 0
    names = [name for name, _ in model.named_parameters() if "magnitude" in name]
    assert sorted(priors.adapters(model, deterministic=names).named_groups()) == ["lora_A", "lora_B"]


def test_a_model_without_adapters():
    with pytest.raises(ValueError, match="no trainable LoRA adapters"):
        priors.adapters(Net())


def test_networks_without_a_new_classifier():
    net = Net()
    for make in (priors.l2_sp, priors.l2_zero, priors.per_layer):
        assert "head" not in make(net, head=[]).variances
