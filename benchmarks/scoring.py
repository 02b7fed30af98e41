"""`mybert score` compared with one masked copy at a time through transformers, and with minicons if it is installed.

    python benchmarks/scoring.py FILE MODEL [--limit 100] [--threads 2]

FILE contains rows with a column `text`. MODEL is a BERT checkpoint; without a masked-language-model head it gets a
random one, which changes the scores but not the time. Times are CPU seconds, which other programs change little. The
scores of all sides are compared. Prints a Markdown table.
"""

import argparse
import importlib.util
import tempfile
from collections.abc import Callable
from itertools import islice

import torch
from saved_tables import markdown
from sides import timed
from transformers import BertForMaskedLM, BertTokenizer, set_seed

from mybert import Scorer
from mybert.common.machine import hardware
from mybert.inference.checkpoint import quiet_loading
from mybert.io.documents import read_documents
from tokenization import MyBertTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("model")
    parser.add_argument("--limit", type=int, default=100, help="texts, the first of the file")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = [document.text for document in islice(read_documents([options.file]), options.limit)]
    with tempfile.TemporaryDirectory() as folder, quiet_loading():
        set_seed(0)
        BertForMaskedLM.from_pretrained(options.model).save_pretrained(folder)
        MyBertTokenizer.from_pretrained(options.model).save_pretrained(folder)
        sides: dict[str, Callable[[], list[float]]] = {}
        scorer = Scorer(folder, device="cpu")
        bert, tokenizer = BertForMaskedLM.from_pretrained(folder).eval(), BertTokenizer.from_pretrained(folder)
        sides["mybert score"] = lambda: [score.log_probability for score in scorer.texts(texts)]
        half = Scorer(folder, device="cpu", dtype="bfloat16")
        sides["mybert score --dtype bfloat16"] = lambda: [score.log_probability for score in half.texts(texts)]
        if importlib.util.find_spec("minicons"):
            from minicons.scorer import MaskedLMScorer

            minicons = MaskedLMScorer(folder, "cpu")
            minicons.tokenizer.batch_encode_plus = minicons.tokenizer  # its old name, which transformers 5 has removed
            total = {"reduction": lambda scores: scores.sum().item()}
            sides["minicons, a text at a time"] = lambda: [minicons.sequence_score([t], **total)[0] for t in texts]
            within = {**total, "PLL_metric": "within_word_l2r"}
            expected = [minicons.sequence_score([text], **within)[0] for text in texts[:20]]
            found = [score.log_probability for score in scorer.texts(texts[:20], within_word=True)]
            difference = max(abs(a - b) for a, b in zip(found, expected, strict=True))
            print(f"within-word masking: differs from minicons by {difference:.1e} at most\n")
        sides["transformers, a copy at a time"] = lambda: [one_at_a_time(bert, tokenizer, text) for text in texts]
        compare(sides, len(texts), sum(len(score.tokens) for score in scorer.texts(texts)))


@torch.inference_mode()
def one_at_a_time(bert: BertForMaskedLM, tokenizer: BertTokenizer, text: str) -> float:
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    total = 0.0
    for place in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, place] = tokenizer.mask_token_id
        total += bert(input_ids=masked).logits[0, place].log_softmax(-1)[ids[0, place]].item()
    return total


def compare(sides: dict[str, Callable[[], list[float]]], texts: int, tokens: int) -> None:
    runs = {name: timed(run) for name, run in sides.items()}
    slowest, reference, rows = max(run.cpu for run in runs.values()), runs["mybert score"].found, []
    for name, run in runs.items():
        difference = max(abs(a - b) for a, b in zip(reference, run.found, strict=True))
        speed = f"{run.cpu:.1f}", f"{tokens / run.cpu:,.0f}", f"{slowest / run.cpu:.1f}"
        rows.append((name, *speed, f"{difference:.1e}"))
    print(f"{texts} texts, {tokens} tokens without special ones\n")
    columns = ("CPU seconds", "tokens/s", "times as fast", "largest difference of a text's log-probability")
    print(markdown(rows, ("", *columns)))


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
