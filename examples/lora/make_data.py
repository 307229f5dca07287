"""Make messages to a shop's help desk, and a small transformer with random weights to begin from.

    python make_data.py

Writes data/messages.csv, 2,400 messages with the columns `topic` and `part`; data/train.csv and data/validation.csv,
the messages of these parts, for train.py; new-messages.txt; and base/, a BERT of two layers with its tokenizer, whose
words have the numbers that podium gives them.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import podium

HERE = Path(__file__).parent
TOPICS = {
    "delivery": ("my {thing} has not arrived", "where is the {thing} i ordered", "the parcel with the {thing} is late",
                 "when will you deliver the {thing}", "the courier left without the {thing}"),
    "fault": ("my {thing} is broken", "the {thing} stopped working", "there is a crack in the {thing}",
              "the {thing} makes a strange noise", "the {thing} does not start"),
    "payment": ("i was charged twice for the {thing}", "the invoice for the {thing} is wrong",
                "can i pay for the {thing} later", "my card was refused for the {thing}",
                "please refund what i paid for the {thing}"),
    "question": ("does the {thing} fit a small room", "is the {thing} available in blue", "how heavy is the {thing}",
                 "which {thing} do you recommend", "how do i clean the {thing}"),
}  # fmt: skip
THINGS = (
    "lamp",
    "kettle",
    "chair",
    "desk",
    "printer",
    "vacuum cleaner",
    "mirror",
    "heater",
    "radio",
    "toaster",
)
OPENINGS = ("hello,", "hi there,", "good morning,", "excuse me,", "dear team,", "")
ASIDES = (
    "the last order was broken but was replaced", "the courier was friendly this time", "i paid by card as always",
    "it is a gift", "i live on the third floor", "a friend recommended you", "it was delivered last week", "",
)  # fmt: skip
ENDINGS = ("thanks!", "please help.", "what now?", "")
PARTS = ("train", "validation", "test")


def message(rng: np.random.Generator, topic: str) -> str:
    """Return a message; what it says beside its topic may belong to another one."""
    said = str(rng.choice(TOPICS[topic])).format(thing=rng.choice(THINGS))
    aside = str(rng.choice(ASIDES))
    clauses = [f"{said}.", *([f"{aside}."] if aside else [])]
    rng.shuffle(clauses)
    return " ".join(
        filter(None, [str(rng.choice(OPENINGS)), *clauses, str(rng.choice(ENDINGS))])
    ).capitalize()


def make(count: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Return different messages and their topics; four of a hundred topics are wrong."""
    topics, rows = list(TOPICS), dict[str, str]()
    while len(rows) < count:
        topic = str(rng.choice(topics))
        rows[message(rng, topic)] = str(rng.choice(topics)) if rng.random() < 0.04 else topic
    return list(rows.items())


def write(file: Path, names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([names, *rows])


def make_base(words: list[str]) -> None:
    """Write a tokenizer of these words, by their positions, and a model that has learned nothing."""
    vocabulary = {word: at for at, word in enumerate([*words, "[CLS]"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=words[1]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"\w+(?:'\w+)*|[^\w\s]"), "removed", invert=True
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", vocabulary["[CLS]"])]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=words[0], unk_token=words[1], cls_token="[CLS]"
    ).save_pretrained(HERE / "base")
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=64, pad_token_id=0, initializer_range=0.1,
        id2label=dict(enumerate(sorted(TOPICS))), label2id={topic: at for at, topic in enumerate(sorted(TOPICS))},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(HERE / "base")


def main() -> None:
    rng, data = np.random.default_rng(2026), HERE / "data"
    data.mkdir(exist_ok=True)
    rows = make(2450, rng)
    kept = [(*row, str(rng.choice(PARTS, p=[0.7, 0.15, 0.15]))) for row in rows[:2400]]
    write(data / "messages.csv", ("text", "topic", "part"), kept)
    for part in ("train", "validation"):
        write(data / f"{part}.csv", ("text", "topic"), [row[:2] for row in kept if row[2] == part])
    (HERE / "new-messages.txt").write_text("".join(f"{text}\n" for text, _ in rows[2400:]))
    with tempfile.TemporaryDirectory() as scratch:
        source = f"text:{data / 'messages.csv'}"
        prepared = podium.prepare_data(source, Path(scratch, "data"), target="topic", part="part")
        make_base(list(prepared.info.preprocessing["vocabulary"]))
    print(
        f"{data / 'messages.csv'}: {len(kept):,} messages; {HERE / 'base'}: a model with random weights"
    )


if __name__ == "__main__":
    main()
