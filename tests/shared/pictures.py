"""Small real images, tables and networks that the tests of data, models and commands share."""

import csv
import json
from pathlib import Path

import torch
from PIL import Image
from torch import nn

COLOURS = {"blue": (40, 60, 220), "green": (40, 200, 60), "red": (220, 50, 40)}


def picture(colour, index=0, size=(40, 32)):
    image = Image.new("RGB", size, COLOURS[colour])
    for x in range(size[0]):  # so that no two are the same
        image.putpixel((x, index % size[1]), (255, 255, 255))
    return image


def image_folder(path: Path, train=6, test=3, colours=tuple(COLOURS)):
    for part, number in (("train", train), ("test", test)):
        for colour in colours if number else ():
            folder = path / part / colour
            folder.mkdir(parents=True)
            for i in range(number):
                picture(colour, i).save(folder / f"{i}.png")
    return path


WORDS = {"sport": "ball team goal match player", "money": "bank stock price market trade"}


def text_table(path: Path, rows=12):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(rows):
            label = list(WORDS)[i % 2]
            words = WORDS[label].split()
            writer.writerow([" ".join(words[(i + j) % 5] for j in range(2 + i % 3)), label])
    return path


def tiny_bert(folder: Path):
    """A Hugging Face folder with weights and tokenizer."""
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *" ".join(WORDS.values()).split()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(words)}, model_max_length=16)
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=16, **sizes)
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def tiny_encoder(folder: Path, **pooling):
    """A sentence encoder that says how it pools, as sentence-transformers does; returns the model's name."""
    tiny_bert(folder)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **pooling}))
    return f"hf:{folder}"


class Small(nn.Module):
    """What `shared.pictures:small` makes, as a user's own module would."""

    def __init__(self, num_classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.fc(self.body(x).flatten(1))


def small(num_classes):
    return Small(num_classes)


def no_network(num_classes):
    return "a string"
