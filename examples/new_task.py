"""A head for a new task, here the sense of a marked word: `python new_task.py MODEL rows.jsonl OUTPUT`.

Each row is an object with `text`, the `word` in it, and a whole-number `label`. The head classifies the vector of the
word's first token. CONTRIBUTING.md shows how to add a task to `mybert finetune` itself.
"""

import argparse

import torch
from datasets import load_dataset
from torch import nn
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from modeling_mybert import MyBertModel, MyBertPreTrainedModel
from tokenization import MyBertTokenizer


class WordClassifier(MyBertPreTrainedModel):
    """Classifies one word in its context."""

    def __init__(self, config):
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask, token_type_ids, word_index, labels=None):
        """`word_index` (B,) is the position of the word's first token; `labels` (B,). Returns loss and logits."""
        hidden = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state  # (B, S, H)
        logits = self.classifier(hidden[torch.arange(len(hidden)), word_index])
        return {"loss": None if labels is None else nn.functional.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("rows")
    parser.add_argument("output")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-5, help="for base; tiny needs 1e-3, mini 3e-4")
    options = parser.parse_args()

    tokenizer = MyBertTokenizer.from_pretrained(options.model)

    def encode(row: dict) -> dict:
        encoding = tokenizer(row["text"])
        return {**encoding, "word_index": encoding.char_to_token(row["text"].index(row["word"]))}

    rows = load_dataset("json", data_files=options.rows, split="train").map(encode)
    model = WordClassifier.from_pretrained(options.model, num_labels=len(set(rows["label"])))
    arguments = TrainingArguments(
        options.output, num_train_epochs=options.epochs, learning_rate=options.learning_rate, report_to="none"
    )
    trainer = Trainer(model, arguments, DataCollatorWithPadding(tokenizer), rows, processing_class=tokenizer)
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
