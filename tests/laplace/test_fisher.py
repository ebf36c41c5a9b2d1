"""Per-example gradients on networks of every kind, against one backward pass an example."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deelbo.laplace import empirical_fisher
from deelbo.training.batches import network_output
from shared.cases import Net, batch


def slow_fisher(network, weights, inputs, labels):
    network.eval()
    total = [torch.zeros_like(w) for w in weights]
    for i in range(len(labels)):
        one = {k: v[i : i + 1] for k, v in inputs.items()} if isinstance(inputs, dict) else inputs[i : i + 1]
        network.zero_grad()
        F.cross_entropy(network_output(network, one), labels[i : i + 1]).backward()
        for t, w in zip(total, weights, strict=True):
            if w.grad is not None:
                t += w.grad**2
    network.zero_grad()
    return total


@pytest.mark.parametrize("memory", [1, 10**4, 2**30])
def test_any_memory_gives_the_same(memory):
    network, (x, y) = Net(), batch(13)
    weights = list(network.parameters())
    found = empirical_fisher(network, weights, [(x[:8], y[:8]), (x[8:], y[8:])], memory=memory)
    torch.testing.assert_close(found, slow_fisher(network, weights, x, y))


def networks():
    timm = pytest.importorskip("timm")
    transformers = pytest.importorskip("transformers")
    images = torch.randn(5, 3, 32, 32)
    yield (
        "convnext",
        timm.create_model("convnext_atto", num_classes=3, depths=(1, 1, 1, 1), dims=(8, 8, 16, 16)),
        images,
    )
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, num_classes=3, depth=2, embed_dim=24)
    yield "vit", vit, images
    yield "resnet", timm.create_model("resnet10t", num_classes=3, channels=(8, 8, 8, 8)), images
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    mask = torch.ones(5, 9, dtype=torch.long)
    mask[1, 6:] = 0
    texts = {"input_ids": torch.randint(1, 50, (5, 9)), "attention_mask": mask}
    yield "bert", transformers.BertForSequenceClassification(config), texts


@pytest.mark.parametrize("index", range(4), ids=["convnext", "vit", "resnet", "bert"])
def test_every_architecture(index):
    torch.manual_seed(0)
    _, network, inputs = list(networks())[index]
    network, labels = network.double().train(), torch.tensor([0, 1, 2, 1, 0])
    if not isinstance(inputs, dict):
        inputs = inputs.double()
    weights = [p for p in network.parameters() if p.requires_grad]
    buffers = {n: b.clone() for n, b in network.named_buffers()}
    found = empirical_fisher(network, weights, [(inputs, labels)])
    assert network.training
    assert all(torch.equal(b, buffers[n]) for n, b in network.named_buffers())
    torch.testing.assert_close(found, slow_fisher(network, weights, inputs, labels), rtol=1e-6, atol=1e-12)


def test_tied_and_unused_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 5, dtype=torch.float64)
            self.b = nn.Linear(5, 5, dtype=torch.float64)
            self.b.weight = self.a.weight
            self.unused = nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def forward(self, x):
            return self.b(torch.tanh(self.a(x)))

    network, (x, y) = Tied(), batch(6)
    weights = list(network.parameters())
    for memory in (1, 2**30):
        found = empirical_fisher(network, weights, [(x, y)], memory=memory)
        torch.testing.assert_close(found, slow_fisher(network, weights, x, y))


def test_a_network_that_cannot_run_says_so():
    network = Net()
    with pytest.raises(RuntimeError, match="shapes"):
        empirical_fisher(
            network, list(network.parameters()), [(torch.zeros(4, 9, dtype=torch.float64), torch.zeros(4).long())]
        )
