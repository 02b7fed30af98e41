"""Train sentence embeddings from pairs: `python train_sentence_embeddings.py MODEL pairs.jsonl OUTPUT`.

Each line of pairs.jsonl is an object with `anchor` and `positive`, for example a question and its answer. The other
positives of a batch are the negatives, so larger batches train better. MyBERT computes the real tokens only, without
padding. `SentenceTransformer("OUTPUT")` and `mybert embed OUTPUT texts.txt` read the result.
"""

import argparse

from datasets import load_dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import BatchSamplers

import modeling_mybert  # noqa: F401  (registers MyBERT with transformers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder or Hub name of a MyBERT checkpoint")
    parser.add_argument("pairs", help="JSON lines with anchor and positive")
    parser.add_argument("output", help="output folder")
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    options = parser.parse_args()

    model = SentenceTransformer(options.model)  # adds mean pooling to a checkpoint without a pooling layer
    pairs = load_dataset("json", data_files=options.pairs, split="train").select_columns(["anchor", "positive"])
    arguments = SentenceTransformerTrainingArguments(
        output_dir=options.output,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        warmup_steps=0.1,
        batch_sampler=BatchSamplers.NO_DUPLICATES,  # an equal positive would be a wrong negative
        save_strategy="no",
        report_to="none",
        seed=42,
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)
    )
    trainer.train()
    model.save_pretrained(options.output)


if __name__ == "__main__":
    main()
