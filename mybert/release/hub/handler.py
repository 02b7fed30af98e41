"""Serves the model of this repository on Hugging Face Inference Endpoints.

The endpoint makes one `EndpointHandler` of the folder, and calls it with {"inputs": …, "parameters": {…}} for each
request. `inputs` are one input of the head, or a list of them; `parameters` are arguments of its pipeline, or of
`SentenceTransformer.encode` if the folder is a sentence encoder (it has `modules.json`):

    a text                            feature extraction, masked tokens, classification, tokens, a sentence encoder
    {"text": …, "text_pair": …}       classification of pairs, next sentence prediction
    {"question": …, "context": …}     question answering
    {"text": …, "choices": […]}       multiple choice
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.dynamic_module_utils import get_class_from_dynamic_module

PIPELINES: dict[str, str | None] = {
    "MyBertModel": "feature-extraction",
    "MyBertForPreTraining": "fill-mask",
    "MyBertForMaskedLM": "fill-mask",
    "MyBertForSequenceClassification": "text-classification",
    "MyBertForTokenClassification": "token-classification",
    "MyBertForQuestionAnswering": "question-answering",
    "MyBertForNextSentencePrediction": None,
    "MyBertForMultipleChoice": "multiple-choice",
}
"""The class of each head → its task on the Hub. The last two have no pipeline here."""

PIPELINE_ARGUMENTS: dict[str, dict[str, Any]] = {
    "fill-mask": {"tokenizer_kwargs": {"truncation": True}},
    "text-classification": {"truncation": True},
    "feature-extraction": {"truncation": True},
}
"""Arguments for texts longer than the model can read; other pipelines truncate by default or use windows."""

_WORDS = "token_classification_mybert"  # the file with the pipeline that splits texts as training did
_AUTO = {
    "MyBertForNextSentencePrediction": "AutoModelForNextSentencePrediction",
    "MyBertForMultipleChoice": "AutoModelForMultipleChoice",
}


class EndpointHandler:
    """Loads the model in the folder `path`, on the GPU if there is one; int8 weights work on the CPU only."""

    tokenizer: Any
    _predict: Callable[..., Any]

    def __init__(self, path: str | Path = ""):
        folder = str(path or Path(__file__).parent)
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        head, is_int8 = f"My{config['architectures'][0].removeprefix('My')}", config.get("int8_outliers") is not None
        device = "cuda" if torch.cuda.is_available() and not is_int8 else "cpu"
        if head == "MyBertModel" and (Path(folder) / "modules.json").exists():
            from sentence_transformers import SentenceTransformer  # which other heads do not need

            self.model = SentenceTransformer(folder, device=device, trust_remote_code=True)
            self._predict = self._vectors
            return
        if head not in _AUTO:
            task = PIPELINES[head]
            arguments = {"task": task, **PIPELINE_ARGUMENTS.get(str(task), {})}
            if task == "token-classification" and (Path(folder) / f"{_WORDS}.py").exists():
                name = f"{_WORDS}.MyBertTokenClassificationPipeline"
                arguments["pipeline_class"] = get_class_from_dynamic_module(name, folder)
            self._pipeline = transformers.pipeline(model=folder, trust_remote_code=True, device=device, **arguments)
            self.tokenizer = self._pipeline.tokenizer
            self._predict = self._by_pipeline
            return
        self._predict = self._choices if head == "MyBertForMultipleChoice" else self._next_sentences
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        loaded = getattr(transformers, _AUTO[head]).from_pretrained(folder, trust_remote_code=True)
        self.model = loaded.eval().to(device)

    def __call__(self, data: dict[str, Any]) -> Any:
        """The prediction of `data["inputs"]`, or a list of them, made of what JSON can hold.

        Raises:
            ValueError: the request has another form, or asks to load and run code.
        """
        if not isinstance(data, dict) or "inputs" not in data:
            raise ValueError(f"expected an object with the key 'inputs', found {str(data)[:200]}")
        parameters = data.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise ValueError(f"parameters: expected an object, found {str(parameters)[:200]}")
        if refused := parameters.keys() & {"custom_generate", "trust_remote_code"}:
            raise ValueError(f"parameters: {', '.join(sorted(refused))} would load code, which a request must not do")
        if data["inputs"] == []:  # pipelines and tokenizers fail on it
            return []
        with torch.inference_mode():
            return _plain(self._predict(data["inputs"], **parameters))

    def _by_pipeline(self, inputs: Any, **parameters: Any) -> Any:
        if parameters.get("truncation", True) is True and "max_length" not in parameters:
            inputs = list(map(self._shortened, inputs)) if isinstance(inputs, list) else self._shortened(inputs)
        return self._pipeline(inputs, **parameters)

    def _vectors(self, inputs: Any, **parameters: Any) -> Any:
        """The vector of each text."""
        for text in inputs if isinstance(inputs, list) else [inputs]:
            if not isinstance(text, str):
                raise ValueError(f"expected a text or a list of texts, found {str(text)[:200]!r}")
        return self.model.encode(inputs, show_progress_bar=False, **parameters)

    def _next_sentences(self, inputs: Any) -> Any:
        """For each pair of texts, the probabilities that the second follows the first (IsNext) or not (NotNext)."""
        if not isinstance(inputs, list):
            return self._next_sentences([inputs])[0]
        texts, seconds = _fields(inputs, "text", "text_pair")
        batch = self._tokenized(texts, seconds)
        rows = self.model(**batch).logits.float().softmax(-1).tolist()
        return [_scores(("IsNext", "NotNext"), row) for row in rows]

    def _choices(self, inputs: Any) -> Any:
        """For each text, the probabilities of its choices."""
        if isinstance(inputs, list):
            return [self._choices(one) for one in inputs]
        (text,), (choices,) = _fields([inputs], "text", "choices")
        batch = self._tokenized([text] * len(choices), choices)
        logits = self.model(**{name: rows.unsqueeze(0) for name, rows in batch.items()}).logits
        return _scores(choices, logits[0].float().softmax(-1).tolist())

    def _tokenized(self, *texts: list[str]) -> dict[str, torch.Tensor]:
        if len(texts) == 2 and isinstance(texts[1], list):
            texts = tuple(map(list, zip(*map(self._short_pair, *texts), strict=True)))
        batch = self.tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
        return dict(batch.to(self.model.device))

    def _shortened(self, one: Any) -> Any:
        if not isinstance(one, dict) or not {"text", "text_pair"} <= one.keys():
            return one
        first, second = self._short_pair(one["text"], one["text_pair"])
        return one | {"text": first, "text_pair": second}

    def _short_pair(self, first: Any, second: Any) -> tuple[Any, Any]:
        """Shortens one of two long texts; truncation still gives the same result.

        The tokenizers library stores the truncated tokens of a pair in every combination of its parts, so two texts of
        a hundred thousand characters would take minutes and gigabytes.
        """
        limit = self.tokenizer.model_max_length
        if not all(isinstance(text, str) and len(text) > limit for text in (first, second)):
            return first, second
        if self.tokenizer.truncation_side != "right":
            return first, second
        tokens = [self.tokenizer(text, add_special_tokens=False) for text in (first, second)]
        lengths = [len(encoding["input_ids"]) for encoding in tokens]
        if lengths[0] <= lengths[1]:  # the longer text gets the odd token
            return _first_tokens(first, tokens[0], limit), second
        return first, _first_tokens(second, tokens[1], limit)


def _first_tokens(text: str, tokens: Any, count: int) -> str:
    """`text` up to the end of a word, with at least `count` tokens, if it has more. `tokens`: of the whole text."""
    words = tokens.word_ids()
    cut = next((place for place in range(count, len(words)) if words[place] != words[place - 1]), None)
    return text if cut is None else text[: tokens.token_to_chars(cut).start]


def _fields(inputs: list[Any], *names: str) -> list[list[Any]]:
    """The values of two keys of each input."""
    for one in inputs:
        if not isinstance(one, dict) or not all(one.get(name) for name in names):
            raise ValueError(f"expected inputs with {' and '.join(map(repr, names))}, found {str(one)[:200]!r}")
    return [[one[name] for one in inputs] for name in names]


def _scores(labels: Any, scores: list[float]) -> list[dict[str, Any]]:
    return [{"label": label, "score": score} for label, score in zip(labels, scores, strict=True)]


def _plain(value: Any) -> Any:
    """Numbers of numpy and torch as numbers of Python."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
