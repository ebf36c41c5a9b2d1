import peft
import pytest
import timm
import torch
import torchvision
import transformers
from torch import nn

import deelbo
from deelbo._head import split_head
from deelbo.priors import find_head, l2_zero
from shared.cases import Net


def on_meta(make):
    with torch.device("meta"):
        return make()


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("resnet50", "fc"),
        ("convnext_tiny", "head.fc"),
        ("vit_tiny_patch16_224", "head"),
        ("efficientnet_b0", "classifier"),
        ("vgg11", "head.fc"),
        ("swin_tiny_patch4_window7_224", "head.fc"),
    ],
)
def test_timm(name, head):
    assert find_head(on_meta(lambda: timm.create_model(name, num_classes=7))) == [head]


def test_timm_with_two_heads():
    net = on_meta(lambda: timm.create_model("deit_tiny_distilled_patch16_224", num_classes=7))
    assert sorted(split_head(net, None)[1]) == ["head.bias", "head.weight", "head_dist.bias", "head_dist.weight"]


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("resnet50", "fc"),
        ("convnext_tiny", "classifier.2"),
        ("vit_b_16", "heads.head"),
        ("vgg11", "classifier.6"),
        ("alexnet", "classifier.6"),
        ("squeezenet1_0", "classifier.1"),
        ("mobilenet_v2", "classifier.1"),
        ("mobilenet_v3_small", "classifier.3"),
        ("efficientnet_b0", "classifier.1"),
        ("densenet121", "classifier"),
        ("inception_v3", "fc"),
        ("googlenet", "fc"),
        ("swin_t", "head"),
        ("maxvit_t", "classifier.5"),
    ],
)
def test_torchvision(name, head):
    extra = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    assert find_head(on_meta(lambda: torchvision.models.get_model(name, weights=None, **extra))) == [head]


@pytest.mark.parametrize(
    ("config", "auto", "head"),
    [
        (transformers.BertConfig, "AutoModelForSequenceClassification", ["classifier"]),
        (transformers.RobertaConfig, "AutoModelForSequenceClassification", ["classifier"]),
        (transformers.DistilBertConfig, "AutoModelForSequenceClassification", ["classifier", "pre_classifier"]),
        (transformers.GPT2Config, "AutoModelForSequenceClassification", ["score"]),
        (transformers.ViTConfig, "AutoModelForImageClassification", ["classifier"]),
        (transformers.ConvNextConfig, "AutoModelForImageClassification", ["classifier"]),
    ],
)
def test_hugging_face(config, auto, head):
    assert find_head(on_meta(lambda: getattr(transformers, auto).from_config(config()))) == head


def test_peft_trains_the_whole_classifier_of_roberta():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    net = transformers.RobertaForSequenceClassification(transformers.RobertaConfig(vocab_size=20, **sizes))
    net = peft.get_peft_model(net, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"]))
    assert len(split_head(net, None)[1]) == 4
    assert all("lora" in name for name in split_head(net, None)[0])


def test_wrapped_networks_are_seen_through():
    assert find_head(torch.compile(nn.ModuleDict({"body": nn.Linear(2, 2), "fc": nn.Linear(2, 2)}))) == ["fc"]


def test_unknown_networks_name_candidates():
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    with pytest.raises(ValueError, match=r'which part of Sequential is the classifier.*candidates: "2", "0"'):
        l2_zero(net)
    assert sorted(split_head(net, "2")[1]) == ["2.bias", "2.weight"]


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match='head "fc" names no parameter of Net; candidates: "head", "body"'):
        l2_zero(Net(), head="fc")
    net = Net()
    net.head.requires_grad_(False)
    with pytest.raises(ValueError, match='head "head" is frozen in Net; candidates: "body"'):
        l2_zero(net, head="head")


def test_names_match_whole_components():
    net = nn.ModuleDict({"head": nn.Linear(2, 2), "header": nn.Linear(2, 2)})
    assert sorted(split_head(net, "head")[1]) == ["head.bias", "head.weight"]


def test_names_that_are_not_the_last_layer_are_no_classifier():
    backbone = on_meta(lambda: timm.create_model("convnext_atto", num_classes=0))
    for net in (
        nn.Sequential(backbone, nn.Linear(320, 3)),
        nn.ModuleDict({"fc": nn.Linear(2, 2), "out": nn.Linear(2, 2)}),
    ):
        with pytest.raises(ValueError, match="pass head="):
            find_head(net)


def test_tied_heads_say_what_they_are_tied_to():
    net = nn.ModuleDict({"embed": nn.Embedding(4, 3), "lm_head": nn.Linear(3, 4, bias=False)})
    net["lm_head"].weight = net["embed"].weight
    with pytest.raises(ValueError, match=r'"lm_head" is tied to "embed.weight"'):
        l2_zero(net, head="lm_head")


def test_deterministic_parameters_have_no_prior():
    net = Net()
    prior = l2_zero(net, head="head", deterministic=["norm"])
    posterior = deelbo.IsotropicPosterior(net, deterministic=["norm"])
    assert deelbo.DataEmphasizedELBO(posterior, prior, 12).kappa > 1
    assert prior.named_groups()["backbone"].names == ["body.weight", "body.bias"]
