"""The Markdown pages of the project: their Python blocks, their commands, and what the blocks expect to be there."""

import re
import shlex
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_blocks(text):
    return [code for language, code in FENCED.findall(text) if language == "python"]


def commands(text):
    """Return the command lines of deelbo in a page, as lists of words; optional ones, in brackets, included."""
    found = []
    for language, block in FENCED.findall(text):
        for line in block.replace("\\\n", " ").splitlines() if language != "python" else ():
            if re.match(r"deelbo \w+ {3,}\w", line):  # a list of commands, with explanations
                continue
            if command := re.search(r"(?:^|\| |-m )deelbo (.*)$", line):
                found.append(shlex.split(re.sub(r"\[(--.*?)\]", r"\1", command[1]), comments=True))
    return found


def inline_commands(text):
    """Return the commands inside of sentences and tables, as lists of words."""
    return [command.split() for command in re.findall(r"`deelbo ([^`]+)`", FENCED.sub("", text))]


def mentioned_options(text):
    """Return the options that stand by themselves inside of sentences and tables."""
    return set(re.findall(r"`(--[a-z][\w-]*)[^`]*`", FENCED.sub("", text)))


class WithHead(nn.Module):
    """A network whose classifier is found by its name."""

    def __init__(self, outputs=3, hidden=8):
        super().__init__()
        self.body, self.fc = nn.Linear(5, hidden), nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.fc(self.body(x).tanh())


def classes(number=24):
    x = torch.randn(number, 5, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, x[:, :3].argmax(1))


def attached(names):
    x, y = names["x"] / 16, names["y"]
    model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)).double()
    prior = names["deelbo"].priors.l2_zero(model, head="2")
    objective = names["deelbo"].DataEmphasizedELBO(names["deelbo"].IsotropicPosterior(model), prior, num_data=len(x))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    loader = DataLoader(TensorDataset(x, y), batch_size=100)
    return {"model": model, "objective": objective, "optimizer": optimizer, "loader": loader}


def three_parts(names):
    model = nn.Module()
    model.encoder, model.decoder, model.out = nn.Linear(4, 3), nn.Linear(3, 4), nn.Linear(4, 2)
    return {"model": model}


def sharded(names):
    store = f"file://{Path('store').resolve()}"  # a reader has several processes, started by torchrun
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    return {"model": WithHead(), "loader": DataLoader(classes(), batch_size=8)}


def sharded_anew(names):
    model, deelbo = WithHead(), names["deelbo"]
    torch.distributed.fsdp.fully_shard(model)
    objective = deelbo.DataEmphasizedELBO(deelbo.IsotropicPosterior(model), deelbo.priors.l2_sp(model), num_data=24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    saved = names["objective"].summary()
    return {"model": model, "objective": objective, "optimizer": optimizer, "saved": saved}


def trainer(names):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=30, num_labels=3, **sizes)
    ids = torch.randint(5, 30, (12, 5), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": row, "labels": row[0] % 3} for row in ids]
    args = transformers.TrainingArguments(
        output_dir="trainer", max_steps=2, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no"
    )
    model = transformers.BertForSequenceClassification(config)
    return {"model": model, "args": args, "train_set": rows, "test_set": rows}


def lightning_module(names):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = WithHead()

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return {"module": Module(), "train_set": classes(), "loader": DataLoader(classes(), batch_size=8)}


def numbers(names):
    x, y = classes().tensors
    return {"X": x.double().numpy(), "y": x.sum(1).double().numpy(), "labels": y.numpy(), "X_new": x[:4].numpy()}


def embeddings(names):
    import math

    return {"math": math, "nn": nn, "classes": 3, "x": torch.randn(6, 1280)}


def source_task(names):
    return {"model": WithHead(), "loader": DataLoader(classes(), batch_size=8)}


# What a reader has who comes to a block, beside the names of the page's earlier blocks.
GIVEN = {
    "docs/training-loop.md": {2: attached, 3: three_parts, 5: sharded, 6: sharded_anew},
    "docs/integrations.md": {0: trainer, 1: lightning_module},
    "docs/rff.md": {0: numbers, 1: embeddings},
    "docs/ptyl.md": {0: source_task},
}
# Changes that make a block short; nothing else of it is changed, and no block is left out.
SHORTER = {
    "docs/integrations.md": {"gradient_clip_val=1.0": 'gradient_clip_val=1.0, max_epochs=1, accelerator="cpu"'},
    "docs/rff.md": {"num_features=1024": "num_features=64", "RFFClassifier()": "RFFClassifier(64, max_iter=5)"},
    "docs/ptyl.md": {"steps=2000": "steps=40"},
    "docs/regression.md": {'"folds=3", **settings': '"folds=3", **{**settings, "steps": 60}'},
}
