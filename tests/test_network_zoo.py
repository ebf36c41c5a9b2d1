"""Real architectures with random weights: nothing is wrapped, so nothing is missed."""

import peft
import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn

import deelbo
from shared.cases import copies, same


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: torchvision.models.resnet50(num_classes=10), 23_528_522),
        (lambda: torchvision.models.convnext_tiny(num_classes=10), 27_827_818),
        (lambda: torchvision.models.convnext_tiny(num_classes=102), 27_898_566),
        (lambda: timm.create_model("convnext_tiny", num_classes=37), 27_848_581),
        (lambda: torchvision.models.vit_b_16(num_classes=10), 85_806_346),
        (lambda: bert(transformers.BertConfig(num_labels=4)), 109_485_316),
    ],
)
def test_number_of_weights_is_the_papers(make, expected):
    with torch.device("meta"):
        net = make()
    posterior = deelbo.IsotropicPosterior(net)
    assert posterior.num_params == expected
    prior = deelbo.priors.l2_zero(net)
    assert sum(group.num_params for group in prior.named_groups().values()) == expected
    assert deelbo.DataEmphasizedELBO(posterior, prior, num_data=1000).kappa == expected / 1000


def bert(config):
    return transformers.BertForSequenceClassification(config)


def tiny_bert():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return bert(transformers.BertConfig(vocab_size=50, num_labels=3, max_position_embeddings=20, **sizes))


def lora_bert():
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    return peft.get_peft_model(tiny_bert(), config)


def tiny_vit():
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "init_values": 0.1}
    return timm.create_model("vit_tiny_patch16_224", num_classes=3, **sizes)


def tiny_convnext():
    return timm.create_model("convnext_atto", dims=(8, 8, 8, 8), depths=(1, 1, 1, 1), num_classes=3)


def torchvision_vit():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 16}
    return torchvision.models.VisionTransformer(image_size=32, patch_size=16, num_classes=3, **sizes)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.lstm = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(12, 3)

    def forward(self, tokens):
        return self.fc(self.lstm(self.embed(tokens))[0][:, -1])


NETWORKS = {
    "resnet18": lambda: torchvision.models.resnet18(num_classes=3),
    "torchvision vit": torchvision_vit,
    "timm convnext": tiny_convnext,
    "timm vit": tiny_vit,
    "timm efficientnet": lambda: timm.create_model("efficientnet_lite0", num_classes=3),
    "bert": tiny_bert,
    "lora": lora_bert,
    "lstm": Recurrent,
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("attach", [False, True])
def test_one_training_step(name, attach):
    net = NETWORKS[name]()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.01)
    prior = deelbo.priors.l2_sp(net)
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=100)
    trainable = {name: p for name, p in net.named_parameters() if p.requires_grad}
    counted = [id(p) for group in prior.named_groups().values() for p in group.weights]
    assert sorted(counted) == sorted(id(p) for p in trainable.values())
    assert {id(p) for p in posterior.means.values()} == set(counted)

    text = name in ("bert", "lora", "lstm")
    x = torch.randint(50, (4, 7)) if text else torch.randn(4, 3, 32, 32)
    y = torch.tensor([0, 1, 2, 0])

    def loss():
        output = net(x)
        return F.cross_entropy(output if isinstance(output, torch.Tensor) else output.logits, y)

    before = copies(net)
    if attach:
        optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01)
        objective.attach(optimizer)
        value = loss()
        _check_perturbed(net, before)
        value.backward()
    else:
        optimizer = torch.optim.SGD(posterior.parameters(), lr=0.01)
        with posterior.sample():
            _check_perturbed(net, before)
            loss().backward()
        objective.backward()
    assert same(net, before)
    optimizer.step()
    assert all(p.grad is not None for p in trainable.values())
    assert not same(net, before)
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters() if not p.requires_grad)
    assert prior.variances.keys() == {"backbone", "head"}
    assert all(0 < value < 1 for value in prior.variances.values())


def _check_perturbed(net, before):
    for name, p in net.named_parameters():
        assert torch.equal(p, before[name]) != p.requires_grad, name
