"""LoRA fine-tuning of a language model, with the decay chosen by hand and learned: `python examples/lora.py`.

    python examples/lora.py                                          # without a network: five minutes on one thread
    python examples/lora.py --model gpt2 --texts FILE                # a model of the hub, a text on each line of FILE

Without arguments a small Llama is trained from scratch on docstrings of Python's standard library, and then tuned on
300 docstrings of PyTorch. The table has a line for each weight decay, and two for `huggingface.attach(trainer)`: with
kappa = D/N, where D counts the weights of the adapters, and with D of the whole network, which emphasises the data as
much as tuning without adapters does. All have the same Trainer, learning rate and steps. The test texts are looked at
once, at the end of each run; nothing is chosen by them.
"""

import argparse
import ast
import copy
import random
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import peft
import tokenizers
import torch
import transformers

from deelbo.integrations import huggingface

DECAYS = (0.0, 0.01, 0.1, 1.0, 30.0)
QUIET = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}


def docstrings(folder: Path) -> list[str]:
    """Return the docstrings of all Python files below a folder, without those that are installed there."""
    found: dict[str, None] = {}
    for file in sorted(folder.rglob("*.py")):
        if {"site-packages", "test", "tests"} & set(file.relative_to(folder).parts):
            continue
        try:
            nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        except (SyntaxError, UnicodeDecodeError):  # a file that is there to be wrong
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        texts = (ast.get_docstring(node) for node in nodes if isinstance(node, kinds))
        found.update((text, None) for text in texts if text and len(text) > 80)
    return list(found)


def small_model(texts: list[str]) -> tuple[Any, Any]:
    """Return a tokenizer and a small Llama, trained on each text once."""
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=300, special_tokens=["<end>"], show_progress=False)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token="<end>", pad_token="<end>")
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=96, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=128, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.cat([torch.tensor([*fast(text).input_ids, 0]) for text in texts])
    rows = tokens[: len(tokens) // 128 * 128].view(-1, 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    batches = torch.randperm(len(rows)).split(16)
    for step, batch in enumerate(batches):
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1.0, step / 20) * (1 - step / len(batches))
        loss = model(input_ids=rows[batch], labels=rows[batch]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seen = 16 * 128 * len(batches)
    print(f"a model of {model.num_parameters():,} weights, trained on {seen:,} tokens to a loss of {loss:.2f}")
    return fast, model


def tokenized(tokenizer: Any, texts: list[str]) -> list[dict[str, list[int]]]:
    """Return the tokens of each text, at most 128."""
    return [{"input_ids": tokenizer(text, truncation=True, max_length=128).input_ids} for text in texts]


def tune(
    pretrained: Any, tokenizer: Any, parts: tuple[Any, Any], options: Any, decay: float = 0.0, kappa: str = ""
) -> None:
    """Tune adapters of a copy of a model with a weight decay, or with deelbo if there is a kappa; print a line."""
    transformers.set_seed(0)
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=16, target_modules="all-linear")
    network = peft.get_peft_model(copy.deepcopy(pretrained), lora)
    args = transformers.TrainingArguments(
        tempfile.gettempdir(), num_train_epochs=options.epochs, learning_rate=options.learning_rate, weight_decay=decay,
        per_device_train_batch_size=16, per_device_eval_batch_size=16, lr_scheduler_type="cosine", **QUIET,
    )  # fmt: skip
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    trainer = transformers.Trainer(network, args, collate, *parts)
    name, learned = f"decay {decay:g}", ""
    if kappa:
        handle = huggingface.attach(trainer)  # the only line of deelbo
        objective = handle.objective
        if kappa == "D of the network":
            objective.kappa = max(1.0, pretrained.num_parameters() / objective.num_data)
        name = f"deelbo, {kappa}"
    begin = time.process_time()
    trainer.train()
    seconds = time.process_time() - begin
    losses = [trainer.evaluate(part)["eval_loss"] for part in parts]
    if kappa:
        learned = ", ".join(f"{group} {variance:.1e}" for group, variance in objective.prior.variances.items())
        learned += f"; scale {objective.summary()['scale']:.1e}, kappa {objective.kappa:.1f}"
    print(f"| {name} | {losses[0]:.3f} | {losses[1]:.3f} | {seconds:.0f} s | {learned} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="name or folder of a pretrained causal model")
    parser.add_argument("--texts", type=Path, help="file with a text on each line")
    parser.add_argument("--train-size", type=int, default=300)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    texts = options.texts.read_text().splitlines() if options.texts else docstrings(Path(torch.__file__).parent)
    random.Random(0).shuffle(texts)
    if options.model is None:
        tokenizer, model = small_model(docstrings(Path(sysconfig.get_paths()["stdlib"])))
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    size = min(options.train_size, len(texts) // 2)
    rows = tokenized(tokenizer, texts[: 2 * size])
    parts = rows[:size], rows[size:]
    print(f"{len(parts[0])} texts for training, {len(parts[1])} for the test; losses in nats per token")
    print("|  | training | test | processor time | learned variances |\n| --- | --- | --- | --- | --- |")
    for decay in DECAYS:
        tune(model, tokenizer, parts, options, decay)
    for kappa in ("D of the adapters", "D of the network"):
        tune(model, tokenizer, parts, options, kappa=kappa)


if __name__ == "__main__":
    main()
