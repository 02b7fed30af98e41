"""Fine-tune a LoRA adapter with PEFT: `python peft_lora.py MODEL train.csv OUTPUT`.

Only the low-rank matrices on the query and value projections and the classifier are trained. OUTPUT/adapter contains
them; OUTPUT/merged is a complete checkpoint for `mybert predict` and every Auto class.
"""

import argparse

from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from modeling_mybert import MyBertForSequenceClassification
from tokenization import MyBertTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("train", help="CSV file with the columns text and label")
    parser.add_argument("output")
    parser.add_argument("--epochs", type=float, default=3)
    options = parser.parse_args()

    rows = load_dataset("csv", data_files=options.train, split="train").class_encode_column("label")
    names = rows.features["label"].names
    tokenizer = MyBertTokenizer.from_pretrained(options.model)
    model = MyBertForSequenceClassification.from_pretrained(
        options.model, id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)}
    )
    adapted = get_peft_model(
        model, LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, lora_dropout=0.1, target_modules=["query", "value"])
    )
    adapted.print_trainable_parameters()

    encoded = rows.map(lambda batch: tokenizer(batch["text"], truncation=True, max_length=128), batched=True)
    Trainer(
        model=adapted,
        args=TrainingArguments(
            options.output,
            num_train_epochs=options.epochs,
            learning_rate=1e-3,
            label_names=["labels"],
            report_to="none",
        ),
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=encoded,
    ).train()
    adapted.save_pretrained(f"{options.output}/adapter")
    adapted.merge_and_unload().save_pretrained(f"{options.output}/merged")
    tokenizer.save_pretrained(f"{options.output}/merged")


if __name__ == "__main__":
    main()
