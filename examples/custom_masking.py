"""Pretrain with a masking rule of your own, here spans of tokens: `python custom_masking.py CORPUS OUTPUT`.

CORPUS is a folder of `mybert corpus`. The collator masks spans of 1 to 5 tokens instead of single ones, in the manner
of SpanBERT (Joshi et al. 2020). Everything else is transformers' Trainer and masked-language-model collator.
"""

import argparse

import torch
from datasets import load_from_disk
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

from modeling_mybert import MyBertConfig, MyBertForMaskedLM
from tokenization import MyBertTokenizer


class SpanMaskingCollator(DataCollatorForLanguageModeling):
    """Masks spans of random length until the share `mlm_probability` of the tokens is masked."""

    def __call__(self, features, return_tensors=None) -> dict:
        batch = super().__call__(features, return_tensors)
        return {**batch, "sparse_logits": True}  # the model computes logits of masked tokens only, which is faster

    def torch_mask_tokens(self, inputs: torch.Tensor, special_tokens_mask=None, **kwargs):
        """`inputs` has the shape (B, S); returns masked ids and labels, -100 where there is nothing to predict."""
        labels = inputs.clone()
        special = torch.isin(inputs, torch.tensor(self.tokenizer.all_special_ids))
        masked = torch.zeros_like(inputs, dtype=torch.bool)
        for row in range(len(inputs)):
            candidates = (~special[row]).nonzero().flatten()
            wanted = max(1, round(self.mlm_probability * len(candidates)))
            while masked[row].sum() < wanted:
                start = int(torch.randint(len(candidates), ()))
                length = min(int(torch.randint(1, 6, ())), wanted - int(masked[row].sum()))
                masked[row, candidates[start : start + length]] = True
        labels[~masked] = -100
        return inputs.masked_fill(masked, self.tokenizer.mask_token_id), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus")
    parser.add_argument("output")
    parser.add_argument("--size", default="mini")
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()

    tokenizer = MyBertTokenizer.from_pretrained(f"{options.corpus}/tokenizer")
    examples = load_from_disk(options.corpus).select_columns(["input_ids", "token_type_ids"])
    model = MyBertForMaskedLM(MyBertConfig.from_size(options.size, vocab_size=len(tokenizer)))
    arguments = TrainingArguments(options.output, max_steps=options.steps, learning_rate=1e-3, report_to="none")
    trainer = Trainer(model, arguments, SpanMaskingCollator(tokenizer), examples, processing_class=tokenizer)
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
