"""A tiny sentence encoder, fine-tuned on a few texts in a moment."""

import torch
import transformers

import deelbo
from deelbo import events
from deelbo.models.sentences import SentenceClassifier


def finetuned_texts(number, **settings):
    """Return a run on some texts of two classes, and the notes for the user."""
    told = []
    tokens = [(torch.tensor([i % 2, i % 30, 3]), i % 2) for i in range(number)]
    texts = [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": label} for ids, label in tokens]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    encoder = transformers.BertModel(transformers.BertConfig(vocab_size=30, **sizes), add_pooling_layer=False)
    network = SentenceClassifier(encoder, "mean", 2)
    result = deelbo.finetune(network, texts, steps=3, batch_size=4, listener=told.append, device="cpu", **settings)
    return result, [event.text for event in told if isinstance(event, events.Note)]
