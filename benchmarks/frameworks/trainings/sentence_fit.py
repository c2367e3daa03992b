"""sentence-transformers: its trainer over a small model that was made here."""

from __future__ import annotations

import random
from typing import Any

import vision  # noqa: F401
import torch
from clock import Job
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import CoSENTLoss
from sentence_transformers.models import Pooling, Transformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, TrainerCallback

WORDS = [f"word{number}" for number in range(500)]


def model(plan: dict[str, Any]) -> SentenceTransformer:
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = {word: number for number, word in enumerate([*special.values(), *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained("base")
    width = plan["width"]
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained("base")
    inner = Transformer("base", max_seq_length=32)
    return SentenceTransformer(modules=[inner, Pooling(width)], device=plan["device"])


class Faults(TrainerCallback):
    def __init__(self, job: Job) -> None:
        self.job = job

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.job.faults(given["model"])


def main() -> None:
    job = Job()
    plan = job.plan
    choice = random.Random(plan["seed"])
    count = plan["steps"] * plan["batch"]

    def sentences() -> list[str]:
        return [" ".join(choice.choices(WORDS, k=16)) for _ in range(count)]

    pairs = Dataset.from_dict(
        {"sentence1": sentences(), "sentence2": sentences(), "score": [choice.random() for _ in range(count)]}
    )
    trained = model(plan)
    trained[0].auto_model.register_buffer("table", torch.ones(plan.get("payload", 4) // 4))
    trainer = SentenceTransformerTrainer(
        trained,
        SentenceTransformerTrainingArguments(
            "out",
            max_steps=plan["steps"],
            per_device_train_batch_size=plan["batch"],
            save_strategy="steps" if plan.get("save_every") else "no",
            save_steps=plan.get("save_every", 500),
            logging_steps=plan.get("log_every", 50),
            dataloader_num_workers=plan["workers"],
            report_to="none",
            disable_tqdm=True,
            use_cpu=job.device == "cpu",
        ),
        train_dataset=pairs,
        loss=CoSENTLoss(trained),
        callbacks=[Faults(job)],
    )
    trainer._save_checkpoint = job.clocked(trainer._save_checkpoint, "checkpoint")
    trainer.train()


if __name__ == "__main__":
    main()
