"""Fine-tune a transformer for sequence classification with LoRA, as one does with Hugging Face's Trainer."""

import csv
from dataclasses import dataclass

import numpy as np
from peft import LoraConfig, TaskType, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class ModelArguments:
    model_name_or_path: str
    train_file: str
    validation_file: str
    lora_rank: int = 8
    lora_alpha: int = 16
    target_modules: str = "query+value"


def main() -> None:
    args, training = HfArgumentParser(
        (ModelArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    set_seed(training.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForSequenceClassification.from_pretrained(args.model_name_or_path)
    every = args.target_modules == "all-linear"
    lora = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=args.lora_rank,
        lora_alpha=args.lora_alpha,
        lora_dropout=0.05,
        target_modules="all-linear" if every else args.target_modules.split("+"),
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()

    def load(file: str) -> list[dict]:
        with open(file, newline="") as stream:
            rows = list(csv.DictReader(stream))
        return [
            {
                **tokenizer(row["text"], truncation=True),
                "label": model.config.label2id[row["topic"]],
            }
            for row in rows
        ]

    def compute_metrics(predicted: EvalPrediction) -> dict[str, float]:
        return {"accuracy": float(np.mean(predicted.predictions.argmax(-1) == predicted.label_ids))}

    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=load(args.train_file),
        eval_dataset=load(args.validation_file),
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    trainer.save_model()
    tokenizer.save_pretrained(training.output_dir)


if __name__ == "__main__":
    main()
