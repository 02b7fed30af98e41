"""samples.jsonl: predictions for the same held-out sentences and pairs at every evaluation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from mybert.artifacts.manifest import SAMPLES, json_line, replace_text
from mybert.common.quantities import evenly
from mybert.pretraining.data.batching import HeldOutDataset
from mybert.pretraining.evaluation import has_only_letters, is_word

_WORDS, _PAIRS, _READ = 8, 6, 256
_CONTEXT = 12  # tokens on each side of a masked word
_GUESSES = 3
_SHOWN = 160  # characters of a segment


class Samples:
    """Predicts masked words and next sentences of some held-out examples, chosen at even distances."""

    def __init__(self, examples: HeldOutDataset, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        self._examples = examples.__getitems__(evenly(len(examples.corpus), _READ))
        self._rows = np.split(self._examples.input_ids, np.cumsum(self._examples.lengths)[:-1])
        self._words = self._choose_words()
        labels: Any = self._examples.next_sentence_label  # None if there are no pairs
        of_kinds = () if labels is None else [np.flatnonzero(labels == label)[: _PAIRS // 2] for label in (0, 1)]
        self._pairs = sorted(int(index) for indices in of_kinds for index in indices)

    def _choose_words(self) -> list[tuple[list[int], int]]:
        """Windows of ids around different words, each with the place of its word, in the order of the examples.

        The word of an example is the middle one of those that are one token. Of all examples, those are taken whose
        words around it are easiest to read.
        """
        windows: dict[int, tuple[int, list[int], int]] = {}
        special = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        for row in self._rows:
            ids = row.tolist()
            pieces = self.tokenizer.convert_ids_to_tokens(ids)
            good = [
                place
                for place, (piece, after) in enumerate(zip(pieces, [*pieces[1:], ""], strict=True))
                if is_word(piece) and not after.startswith("##") and ids[place] not in windows
            ]
            if good:
                place = good[len(good) // 2]
                edges = [i for i, token in enumerate(ids) if token in special]
                low = max([0, place - _CONTEXT, *(i + 1 for i in edges if i < place)])
                high = min([place + _CONTEXT + 1, *(i for i in edges if i > place)])
                words = sum(map(has_only_letters, pieces[low:high]))
                windows[ids[place]] = words, ids[low:high], place - low
        easiest = sorted(windows, key=lambda answer: -windows[answer][0])[:_WORDS]
        return [(window, place) for answer, (_, window, place) in windows.items() if answer in easiest]

    @torch.no_grad()
    def ask(self, model: nn.Module, device: torch.device) -> dict[str, list[dict[str, Any]]]:
        """
        Returns:
            words: `before`, `word` and `after`, its `probability`, and `guesses` as pairs of token and probability.
            pairs: `a`, `b`, `is_next`, and the `probability` of the right answer.
        """
        model.eval()
        return {"words": self._ask_words(model, device), "pairs": self._ask_pairs(model, device)}

    def _ask_words(self, model: nn.Module, device: torch.device) -> list[dict[str, Any]]:
        decode, names = self.tokenizer.decode, self.tokenizer.convert_ids_to_tokens
        answers = []
        for ids, place in self._words:
            before, after = ids[:place], ids[place + 1 :]
            masked = [*before, self.tokenizer.mask_token_id, *after]
            inputs = torch.tensor([[self.tokenizer.cls_token_id, *masked, self.tokenizer.sep_token_id]], device=device)
            probabilities = model(input_ids=inputs).prediction_logits[0, place + 1].float().softmax(-1)
            top = probabilities.topk(_GUESSES)
            guesses = zip(names(top.indices.tolist()), top.values.tolist(), strict=True)
            answers.append(
                {
                    "before": decode(before),
                    "word": names(ids[place]),
                    "after": decode(after),
                    "probability": round(probabilities[ids[place]].item(), 6),
                    "guesses": [[guess, round(share, 6)] for guess, share in guesses],
                }
            )
        return answers

    def _ask_pairs(self, model: nn.Module, device: torch.device) -> list[dict[str, Any]]:
        answers = []
        labels: Any = self._examples.next_sentence_label  # None if there are no pairs
        for index in self._pairs:
            ids, is_next = self._rows[index].tolist(), not labels[index]
            middle = ids.index(self.tokenizer.sep_token_id)
            types = [int(place > middle) for place in range(len(ids))]
            inputs = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([types])}
            inputs = {name: values.long().to(device) for name, values in inputs.items()}
            probabilities = model(**inputs).seq_relationship_logits[0].float().softmax(-1)
            answers.append(
                {
                    "a": self.tokenizer.decode(ids[1:middle])[-_SHOWN:],
                    "b": self.tokenizer.decode(ids[middle + 1 : -1])[:_SHOWN],
                    "is_next": bool(is_next),
                    "probability": round(probabilities[0 if is_next else 1].item(), 6),
                }
            )
        return answers


def write_sample(folder: str | Path, sample: dict[str, Any]) -> None:
    """Adds a line to samples.jsonl in place of those of the same and later steps, which a resumed run repeats."""
    path = Path(folder) / SAMPLES
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
    kept = [f"{line}\n" for line in lines if json.loads(line)["step"] < sample["step"]]
    replace_text(path, "".join([*kept, json_line(sample)]))
