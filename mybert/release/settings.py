"""Settings of `mybert export`, `merge`, `quantize` and `push`."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mybert.common.errors import UserError, did_you_mean
from mybert.common.quantities import counted
from mybert.settings import declare
from mybert.settings.declare import MODEL, TEXTS, Options, check, check_effect, flag_of, setting
from mybert.settings.shared import OutputFolder, TextFileOptions

_PULL_REQUEST = re.compile(r"refs/pr/\d+")
_REF = r"(?!.*(\.\.|//|@\{))[\w][\w./-]*(?<![./])"  # names of git that need no quoting
_CODES = "ISO 639 codes, such as en de"
_PATTERNS = {
    "revision": (_REF, "letters, digits and . _ - / between them"),
    "tag": (f"(?!refs/){_REF}", "letters, digits and . _ - / between them, without refs/"),
    "license": (r"[a-z0-9.+-]+", "an identifier of the Hub such as apache-2.0 or mit"),
}


@dataclass
class ExportSettings(OutputFolder):
    command: ClassVar[str] = "export"

    model: str = setting(help="Folder or Hub name of a MyBERT or BERT checkpoint.", positional=True, reads=MODEL)
    int8: bool = declare.output(False, "Also write onnx/model_quantized.onnx, with weights and activations in int8.")
    tolerance: float = declare.output(
        1e-4,
        "Maximum difference between the outputs before and after, divided by the largest output if that is above 1.",
        within="(0, inf]",
    )
    int8_tolerance: float = declare.output(
        0.3, "Maximum relative error of the int8 outputs (root mean square).", within="(0, inf]"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_effect(self, "int8_tolerance", self.int8, "without --int8; add it")


@dataclass
class MergeSettings(OutputFolder):
    command: ClassVar[str] = "merge"

    models: list[str] = setting(
        help="Two or more checkpoints trained from the same checkpoint (folders or Hub names).",
        positional=True,
        reads=MODEL,
    )
    weights: list[float] | None = declare.model(
        None, "Weight of each model, in the same order; divided by their sum (default: equal weights)."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        different = len(set(map(Path, self.models)))
        check(self, "models", different == len(self.models) > 1, "two or more checkpoints, each once")
        if self.weights is None:
            return
        if len(self.weights) != len(self.models):
            raise UserError(
                f"--weights has {counted(len(self.weights), 'value')} for {len(self.models)} models; name one for each"
            )
        fitting = all(math.isfinite(weight) and weight >= 0 for weight in self.weights) and sum(self.weights) > 0
        check(self, "weights", fitting, "numbers from 0 on, not all of them 0")

    @property
    def shares(self) -> list[float]:
        """The weights, with a sum of 1."""
        weights = self.weights or [1.0] * len(self.models)
        return [weight / sum(weights) for weight in weights]


@dataclass
class QuantizeSettings(OutputFolder, TextFileOptions):
    command: ClassVar[str] = "quantize"

    model: str = setting(
        help="Folder or Hub name of a MyBERT or BERT checkpoint with any head.", positional=True, reads=MODEL
    )
    texts: list[str] = setting(
        help="Text for calibration, similar to what the model will read: files, data sets or python-docs.", reads=TEXTS
    )
    tokens: int = declare.data(16_000, "Number of tokens of --texts to calibrate with.", least=1)


@dataclass
class PushSettings(Options):
    model: str = setting(help="Folder of the trained model.", positional=True)
    repo_id: str = setting(help="Repository on the Hub, as owner/name; created if it does not exist.")
    public: bool = declare.repository(
        False, "Create the repository as public; --private (the default) creates it as private.", negation="private"
    )
    revision: str = declare.repository(
        "main", "Branch to commit to, created from main if it does not exist; or refs/pr/N."
    )
    tag: str | None = declare.repository(
        None, "Tag for the commit, used in the examples of the model card (default: a hash of the content)."
    )
    create_pr: bool = declare.repository(False, "Open a pull request on main instead of committing to it.")
    overwrite: bool = declare.output(False, "Replace all files of the repository, even if MyBERT did not create it.")
    license: str | None = declare.repository(None, "License of the weights, such as apache-2.0 or cc-by-4.0.")
    language: list[str] | None = declare.data(None, "ISO 639 codes of the languages of the text, such as en de.")
    example: list[str] | None = declare.repository(
        None,
        "Texts for the examples and the widget of the model card, such as one of each class, or a query and passages "
        "for a model that searches; they are published (default: two sentences in the language of the model).",
    )
    exclude: list[str] | None = declare.repository(
        None,
        "Additional files and folders to leave out, such as 'drafts/*'; training checkpoints are always left out.",
    )
    name_sources: bool = declare.repository(
        False,
        "Publish the names, without folders, and hashes of the files and checkpoints that the model was made from; by "
        "default, only their number, their size and one hash of all.",
    )
    verify: bool = declare.repository(
        True, "Load the model in a clean process before and after the upload; runs the checkpoint's code."
    )
    space: str | None = declare.repository(
        None, "Also publish the demo of the model as a Gradio Space of this name, as owner/name (default: none)."
    )
    dry_run: bool = declare.output(False, "Print the files and the card, without its code examples; send nothing.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not Path(self.model).is_dir():
            meant = did_you_mean(self.model)
            raise UserError(f"checkpoint {self.model} is not a folder; name the folder of a trained model{meant}")
        from huggingface_hub.errors import HFValidationError  # here, since the import takes 0.1 s
        from huggingface_hub.utils import validate_repo_id

        for name in ("repo_id", "space"):
            if (value := getattr(self, name)) is None:
                continue
            check(self, name, value.count("/") == 1, "owner/name, such as alice/bert-of-my-books")
            try:
                validate_repo_id(value)
            except HFValidationError as error:
                raise UserError(f"{flag_of(name)}: {error}") from error
        for name, (pattern, expected) in _PATTERNS.items():
            value = getattr(self, name)
            check(self, name, value is None or re.fullmatch(pattern, value) is not None, expected)
        for code in self.language or ():
            check(self, "language", re.fullmatch(r"[a-z]{2,3}|code|multilingual", code) is not None, _CODES)
        if self.create_pr and (self.revision != "main" or self.tag):
            raise UserError("--create-pr opens a pull request on main; it excludes --revision and --tag")
        if self.pull_request and self.tag:
            raise UserError(f"--tag {self.tag}: {self.revision} is a pull request; set the tag when it is merged")

    @property
    def pull_request(self) -> bool:
        """Whether `revision` is an open pull request."""
        return bool(_PULL_REQUEST.fullmatch(self.revision))
