"""Hugging Face's Trainer, as people use it; --results gets what the library's own objects hold."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class Own:
    results: str = "results.json"
    width: int = 16


own, args = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()
set_seed(args.seed)
rng = np.random.default_rng(0)
items = [
    {"input_ids": row.tolist(), "label": int(row[0] > 25)} for row in rng.integers(0, 50, (192, 12))
]
config = BertConfig(
    vocab_size=50,
    hidden_size=own.width,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
)
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=args,
    train_dataset=items[:128],
    eval_dataset=items[128:],
    compute_metrics=lambda given: {
        "accuracy": float((given.predictions.argmax(-1) == given.label_ids).mean())
    },
)
trainer.train()
trainer.save_model()
values = [
    record["eval_accuracy"] for record in trainer.state.log_history if "eval_accuracy" in record
]
Path(own.results).write_text(json.dumps({"eval_accuracy": values}))
