"""Fine-tune with transformers' Trainer: `python finetune_with_trainer.py MODEL train.csv dev.csv OUTPUT`.

The files have the columns `text` and `label`. `mybert finetune` does the same with checks, intervals and reports; use
this script if you need your own training loop.
"""

import argparse

import numpy as np
from datasets import load_dataset
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from modeling_mybert import MyBertForSequenceClassification
from tokenization import MyBertTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder or Hub name of a MyBERT or BERT checkpoint")
    parser.add_argument("train")
    parser.add_argument("validation")
    parser.add_argument("output")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-5, help="for base; tiny needs 1e-3, mini 3e-4")
    options = parser.parse_args()

    rows = load_dataset("csv", data_files={"train": options.train, "validation": options.validation})
    rows = rows.class_encode_column("label")  # label names become numbers
    names = rows["train"].features["label"].names
    tokenizer = MyBertTokenizer.from_pretrained(options.model)
    model = MyBertForSequenceClassification.from_pretrained(
        options.model, id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)}
    )
    encoded = rows.map(lambda batch: tokenizer(batch["text"], truncation=True, max_length=128), batched=True)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            options.output,
            num_train_epochs=options.epochs,
            learning_rate=options.learning_rate,
            eval_strategy="epoch",
            report_to="none",
        ),
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        processing_class=tokenizer,
        compute_metrics=lambda p: {"accuracy": float(np.mean(p.predictions.argmax(-1) == p.label_ids))},
    )
    trainer.train()
    trainer.save_model()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
