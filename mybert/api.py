"""The commands as functions.

Keyword arguments are the flags of a command, with underscores: its own settings and, for training, every field of
transformers.TrainingArguments. `mybert COMMAND --help` describes them. Unknown names raise a `UserError` that suggests
the nearest one.
"""

import pkgutil
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mybert.commands import COMMANDS
from mybert.common.command_line import make_settings
from mybert.common.json_io import parse_json
from mybert.common.manifest import read_manifest
from mybert.common.output_folders import manifest_beside

if TYPE_CHECKING:
    from mybert.finetuning.evaluation.predict import Counts
    from mybert.release.hub.publish import Published

Name = str | PathLike[str]


@dataclass(frozen=True)
class Result:
    """The output of a command.

    Attributes:
        path: the folder or file.
        metrics: the scores that the command computed: of `evaluate` and `pretrain` by metric, of `finetune` by split
            and metric; empty for other commands.
        manifest: the contents of the manifest: settings, inputs, counts, versions.
    """

    path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict, repr=False)

    def __fspath__(self) -> str:
        return str(self.path)


def train_tokenizer(**settings: Any) -> Result:
    """Trains a WordPiece vocabulary on documents, as `mybert tokenizer` does.

    Example:
        >>> train_tokenizer(inputs=["books.txt"], vocab_size=30_000, output="tokenizer")
    """
    return _result("tokenizer", "mybert.corpus.train_tokenizer:build_tokenizer", settings)


def build_corpus(**settings: Any) -> Result:
    """Builds pretraining examples from documents, as `mybert corpus` does.

    Example:
        >>> build_corpus(inputs=["books.txt"], tokenizer="tokenizer", max_length=128, output="corpus")
    """
    return _result("corpus", "mybert.corpus.build:build_corpus", settings)


def pretrain(**settings: Any) -> Result:
    """Pretrains a model on the examples of `build_corpus`, as `mybert pretrain` does.

    Example:
        >>> pretrain(corpus="corpus", size="mini", max_steps=10_000, learning_rate=1e-3, output="model").metrics
        {'mlm_loss': 2.9, 'mlm_accuracy': 0.45, …}
    """
    return _result("pretrain", "mybert.pretraining.run:pretrain", settings)


def finetune(**settings: Any) -> Result:
    """Fine-tunes a checkpoint on labelled rows, as `mybert finetune` does.

    Example:
        >>> data = {"train": "train.csv", "validation": "dev.csv"}
        >>> finetune(task="text-classification", model="model", **data, output="classifier").metrics
        {'validation': {'accuracy': 0.93, …}}
    """
    return _result("finetune", "mybert.finetuning.run:finetune", settings)


def evaluate(**settings: Any) -> Result:
    """Scores a fine-tuned model on labelled rows, as `mybert evaluate` does.

    Example:
        >>> evaluate(model="classifier", data="test.csv", output="scores").metrics
        {'accuracy': 0.92, …}
    """
    return _result("evaluate", "mybert.finetuning.evaluation.evaluate:evaluate", settings)


def predict(model: Name, inputs: Name | list[Name], **settings: Any) -> "Counts":
    """Writes predictions for files of rows, as `mybert predict` does; see `Predictor` for rows in memory.

    Returns:
        The numbers of predictions, errors and truncated rows.

    Example:
        >>> predict("classifier", "new.csv", output="predictions.csv")
        Counts(predictions=120, errors=0, cut=3)
    """
    return _run("predict", "mybert.finetuning.evaluation.predict:predict", settings, model, inputs)


def embed(model: Name, inputs: Name | list[Name], **settings: Any) -> Result:
    """Writes vectors of texts or words to a file, as `mybert embed` does; see `Embedder` for texts in memory.

    Example:
        >>> embed("model", "texts.txt", output="vectors.parquet")
    """
    return _result("embed", "mybert.embedding.run:embed", settings, model, inputs)


def search(vectors: Name, queries: str | list[str], **settings: Any) -> list[dict[str, Any]]:
    """Finds the texts nearest to queries in the vectors of `embed`, as `mybert search` does.

    Example:
        >>> search("vectors.parquet", "how to open a file", top_k=5)
    """
    return _run("search", "mybert.embedding.search:search", settings, vectors, queries)


def export(model: Name, **settings: Any) -> Result:
    """Converts a checkpoint to transformers' BERT or to ONNX, as `mybert export` does.

    Example:
        >>> export("model", to="onnx", output="onnx")
    """
    return _result("export", "mybert.release.convert.export:export", settings, model)


def import_bert(model: Name, **settings: Any) -> Result:
    """Converts a BERT checkpoint of transformers or Google to MyBERT, as `mybert import` does.

    Example:
        >>> import_bert("google-bert/bert-base-uncased", output="model")
    """
    return _result("import", "mybert.release.convert.import_bert:import_bert", settings, model)


def push(model: Name, **settings: Any) -> "Published | None":
    """Verifies a checkpoint and publishes it on the Hugging Face Hub, as `mybert push` does.

    Returns:
        Commit and address of the repository; None with `dry_run`.

    Example:
        >>> push("model", repo_id="me/my-bert", license="apache-2.0", language=["en"])
    """
    return _run("push", "mybert.release.hub.push:push", settings, model)


def _run(command: str, function: str, settings: dict[str, Any], *positional: Any) -> Any:
    return pkgutil.resolve_name(function)(*make_settings(COMMANDS[command].settings_types(), positional, settings))


def _result(command: str, function: str, settings: dict[str, Any], *positional: Any) -> Result:
    path = Path(_run(command, function, settings, *positional))
    manifest = read_manifest(path) if path.is_dir() else parse_json(manifest_beside(path).read_bytes())
    return Result(path, manifest.get("metrics") or {}, manifest)
