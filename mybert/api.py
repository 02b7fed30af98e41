"""The commands as functions.

Keyword arguments are the flags of a command, written with underscores. Training functions also take every field of
transformers.TrainingArguments. `mybert COMMAND --help` describes them. An unknown name raises a `UserError` that
suggests the most similar one. `config` names a YAML or JSON file of settings. Rows (`train`, `validation`, `test`,
`unlabelled`, `data`) may be a file, a list of dictionaries, a `datasets.Dataset` or a pandas DataFrame.
"""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from mybert.artifacts.manifest import DataInMemory, read_manifest
from mybert.artifacts.places import check_places
from mybert.artifacts.staging import manifest_beside
from mybert.commands import COMMANDS
from mybert.common.errors import UserError, called_in_python, cause, warn_once
from mybert.common.json_io import parse_json
from mybert.common.progress import no_library_bars
from mybert.settings.calls import make_settings

if TYPE_CHECKING:
    from mybert.inference.predict import Counts
    from mybert.release.hub.publish import Published
    from mybert.reports.findings import Finding
    from mybert.settings import keywords
    from mybert.settings.keywords import Name


@dataclass(frozen=True)
class Result:
    """The output of a command.

    Attributes:
        path: the output folder or file.
        metrics: scores by metric for `evaluate`, `pretrain`, `adapt`, `distill` and `score`, by split and metric for
            `finetune`; `difference`, `interval` and `p` for `compare`; empty for other commands.
        manifest: the contents of manifest.json: settings, inputs, counts, versions.
    """

    path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict, repr=False)

    def __fspath__(self) -> str:
        return str(self.path)


def train_tokenizer(**settings: Unpack[keywords.TrainTokenizerKeywords]) -> Result:
    """Trains a WordPiece vocabulary on documents, as `mybert tokenizer` does.

    Example:
        >>> train_tokenizer(inputs=["books.txt"], vocab_size=30_000, output="tokenizer")
    """
    return _result("tokenizer", settings)


def build_corpus(**settings: Unpack[keywords.BuildCorpusKeywords]) -> Result:
    """Builds pretraining examples from documents, as `mybert corpus` does.

    Example:
        >>> build_corpus(inputs=["books.txt"], tokenizer="tokenizer", max_length=128, output="corpus")
    """
    return _result("corpus", settings)


def pretrain(**settings: Unpack[keywords.PretrainKeywords]) -> Result:
    """Pretrains a model on text or on the examples of `build_corpus`, as `mybert pretrain` does.

    Example:
        >>> pretrain(text=["books.txt"], time_budget="1h", output="model").metrics
        {'mlm_loss': 3.4, 'mlm_accuracy': 0.41, …}
        >>> pretrain(corpus="corpus", size="mini", max_steps=10_000, learning_rate=1e-3, output="model").metrics
        {'mlm_loss': 2.9, 'mlm_accuracy': 0.45, …}
    """
    return _result("pretrain", settings, function="mybert.workflows.pretrain:pretrain")


def adapt(**settings: Unpack[keywords.AdaptKeywords]) -> Result:
    """Adapts a BERT to a domain: adds words and continues pretraining, as `mybert adapt` does.

    Example:
        >>> found = adapt(model="model", inputs=["books.txt"], new_words=300, max_steps=2000, output="adapted")
        >>> found.manifest["adaptation"]["domain"]["after"]
        {'tokens_per_word': 1.08, 'bits_per_character': 1.21, …}
    """
    return _result("adapt", settings)


def trim(**settings: Unpack[keywords.TrimKeywords]) -> Result:
    """Removes from a model the tokens that a text does not contain, as `mybert trim` does.

    Example:
        >>> trim(model="classifier", inputs=["train.jsonl"], output="small").manifest["trimmed"]["after"]["tokens"]
        14565
    """
    return _result("trim", settings)


def merge(**settings: Unpack[keywords.MergeKeywords]) -> Result:
    """Averages the weights of models that were trained from the same checkpoint, as `mybert merge` does.

    Example:
        >>> merge(models=["model", "adapted"], weights=[0.25, 0.75], output="merged")
    """
    return _result("merge", settings)


def quantize(**settings: Unpack[keywords.QuantizeKeywords]) -> Result:
    """Converts a checkpoint to int8 weights for the CPU, as `mybert quantize` does.

    Example:
        >>> quantize(model="model", texts=["articles.jsonl"], output="int8").manifest["calibration_tokens"]
        16011
    """
    return _result("quantize", settings)


def distill(**settings: Unpack[keywords.DistillKeywords]) -> Result:
    """Distils a teacher into a smaller encoder, as `mybert distill` does.

    Example:
        >>> distill(teacher="model", layers=3, corpus="corpus", max_steps=10_000, output="student").metrics
        {'mlm_loss': 2.9, 'mlm_accuracy': 0.45, …, 'soft_loss': 0.8, 'cosine_loss': 0.05}
    """
    return _result("distill", settings)


def finetune(**settings: Unpack[keywords.FinetuneKeywords]) -> Result:
    """Fine-tunes a checkpoint on labelled rows, as `mybert finetune` does.

    Example:
        >>> data = {"train": "train.csv", "validation": "dev.csv"}
        >>> finetune(task="text-classification", model="model", **data, output="classifier").metrics
        {'validation': {'accuracy': 0.93, …}}
    """
    return _result("finetune", settings)


def evaluate(**settings: Unpack[keywords.EvaluateKeywords]) -> Result:
    """Scores a fine-tuned model on labelled rows, as `mybert evaluate` does.

    Example:
        >>> evaluate(model="classifier", data="test.csv", output="scores").metrics
        {'accuracy': 0.92, …}
    """
    return _result("evaluate", settings)


def compare(runs: Sequence[Name], **settings: Unpack[keywords.CompareKeywords]) -> Result:
    """Compares runs on the same rows, as `mybert compare` does.

    Example:
        >>> compare(["old-scores", "new-scores"], output="comparison").metrics
        {'difference': 0.012, 'interval': [0.001, 0.023], 'p': 0.031}
    """
    return _result("compare", settings, runs)


def predict(model: Name, inputs: Name | Sequence[Name], **settings: Unpack[keywords.PredictKeywords]) -> Counts:
    """Writes predictions for files of rows, as `mybert predict` does; see `Predictor` for rows in memory.

    Returns:
        The numbers of predictions, errors and truncated rows.

    Example:
        >>> predict("classifier", "new.csv", output="predictions.csv")
        Counts(predictions=120, errors=0, cut=3)
    """
    return _run("predict", settings, model, inputs, function="mybert.inference.predict:predict")


def suggest(model: Name, inputs: Name | Sequence[Name], **settings: Unpack[keywords.SuggestKeywords]) -> Result:
    """Writes the rows that are worth labelling next, as `mybert suggest` does.

    Example:
        >>> suggest("classifier", "unlabelled.jsonl", labelled="train.jsonl", count=50, output="next.jsonl")
    """
    return _result("suggest", settings, model, inputs)


def explain(
    model: Name, inputs: Name | Sequence[Name], **settings: Unpack[keywords.ExplainKeywords]
) -> dict[str, Any]:
    """Writes which words predictions depend on, as `mybert explain` does; see `Explainer` for rows in memory.

    Returns:
        The numbers of rows, errors and explained scores; the completeness errors of integrated gradients.

    Example:
        >>> explain("classifier", "new.csv", output="why.html")
        {'rows': 120, 'explained scores': 120, 'completeness error, mean': 0.009, …}
    """
    return _run("explain", settings, model, inputs, function="mybert.explanation.run:explain")


def embed(model: Name, inputs: Name | Sequence[Name], **settings: Unpack[keywords.EmbedKeywords]) -> Result:
    """Writes vectors of texts or words to a file, as `mybert embed` does; see `Embedder` for texts in memory.

    Example:
        >>> embed("model", "texts.txt", output="vectors.parquet")
    """
    return _result("embed", settings, model, inputs)


def build_index(model: Name, inputs: Name | Sequence[Name], **settings: Unpack[keywords.BuildIndexKeywords]) -> Result:
    """Indexes documents, as `mybert index` does; see `Index` for searching, adding and deleting in Python.

    Example:
        >>> build_index("model", "articles.jsonl", output="index")
    """
    return _result("index", settings, model, inputs)


def search(
    vectors: Name, queries: str | Sequence[str], **settings: Unpack[keywords.SearchKeywords]
) -> list[dict[str, Any]]:
    """Finds passages in an index, or the texts nearest to queries in the vectors of `embed`, as `mybert search` does.

    Example:
        >>> search("index", "how to open a file", where=["lang=en"])
        >>> search("vectors.parquet", "how to open a file", top_k=5)
    """
    return _run("search", settings, vectors, queries, function="mybert.workflows.dispatch:search")


def score(model: Name, inputs: Name | Sequence[Name], **settings: Unpack[keywords.ScoreKeywords]) -> Result:
    """Scores texts by pseudo-log-likelihood, as `mybert score` does; see `Scorer` for texts in memory.

    Example:
        >>> score("model", "texts.txt", output="scores.jsonl").metrics
        {'perplexity': 6.2, 'bits_per_character': 0.58}
    """
    return _result("score", settings, model, inputs)


def export(model: Name, **settings: Unpack[keywords.ExportKeywords]) -> Result:
    """Converts a checkpoint to ONNX, as `mybert export` does.

    Example:
        >>> export("model", output="onnx")
    """
    return _result("export", settings, model)


def push(model: Name, **settings: Unpack[keywords.PushKeywords]) -> Published | None:
    """Verifies a checkpoint and publishes it on the Hugging Face Hub, as `mybert push` does.

    Returns:
        Commit and address of the repository; None with `dry_run`.

    Example:
        >>> push("model", repo_id="me/my-bert", license="apache-2.0", language=["en"])
    """
    return _run("push", settings, model)


def doctor(folder: Name, **settings: Unpack[keywords.DoctorKeywords]) -> list[Finding]:
    """Finds problems in the output folder of a stage, as `mybert doctor` does.

    Returns:
        Findings with `level` (red, amber or green), `title`, `evidence` and `remedy`, the most severe first.

    Example:
        >>> [finding.title for finding in doctor("model") if finding.level == "red"]
        ['The loss is still on its first plateau: little is learned yet']
    """
    return _run("doctor", settings, folder, function="mybert.reports.doctor:diagnose", loads_models=False)


def _run(
    command: str,
    settings: Mapping[str, object],
    *positional: Any,
    function: str | None = None,
    loads_models: bool = True,
) -> Any:
    """Calls the function of a command, or another one with the same settings."""
    before = called_in_python.set(True)
    warn_once.cache_clear()  # a second call names what it skips again
    try:
        kinds = COMMANDS[command].settings_types()
        tables = {field.name for kind in kinds for field in fields(kind) if field.metadata.get("tables")}
        given = {name: _named_rows(name, value) if name in tables else value for name, value in settings.items()}
        made = make_settings(kinds, positional, given, check_places)
        with no_library_bars() if loads_models else contextlib.nullcontext():
            output = pkgutil.resolve_name(function or COMMANDS[command].function)(*made)
            if COMMANDS[command].add_report(made, output):
                from mybert.reports.findings import warning_lines

                for line in warning_lines(output):
                    print(line)
            return output
    finally:
        called_in_python.reset(before)


def _named_rows(name: str, value: Any) -> Any:
    """Rows in memory as a setting; other values unchanged."""
    is_list = isinstance(value, list) and value and isinstance(value[0], Mapping)
    if not is_list and not (hasattr(value, "to_parquet") and hasattr(value, "__len__")):
        return value
    from mybert.rows.tables import table_of

    if not len(value):
        raise UserError(f"{name}: found no rows")
    try:
        return DataInMemory(name, table_of(value))
    except Exception as error:  # of pandas, pyarrow or datasets
        raise UserError(f"{name}: the rows cannot be read as a table ({cause(error)})") from error


def _result(command: str, settings: Mapping[str, object], *positional: Any, function: str | None = None) -> Result:
    path = Path(_run(command, settings, *positional, function=function))
    if settings.get("dry_run"):  # nothing was written
        return Result(path)
    manifest = read_manifest(path) if path.is_dir() else parse_json(manifest_beside(path).read_bytes())
    return Result(path, manifest.get("metrics") or {}, manifest)
