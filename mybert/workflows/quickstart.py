"""`mybert quickstart`: train and evaluate a tiny BERT on the documentation of Python and its packages."""

import contextlib
import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mybert.artifacts.manifest import MANIFEST, fingerprint, read_manifest
from mybert.common.errors import UserError, resuming_call
from mybert.common.languages import LANGUAGES, is_language, normalization
from mybert.common.quantities import counted, duration
from mybert.common.tables import print_table
from mybert.io.files import STDIN
from mybert.io.sources import is_python_docs
from mybert.pretraining.settings import TextOptions
from mybert.settings import declare
from mybert.settings.declare import FOLDERS, TEXTS, check
from mybert.settings.shared import ResumeOptions
from mybert.workflows.pretrain import (
    build_examples,
    build_vocabulary,
    division,
    has_examples_of,
    has_vocabulary_of,
    is_document_per_file,
    measure_text,
)

if TYPE_CHECKING:
    from mybert.pretraining.settings import PretrainSettings

_CLEAN_PROCESS = """
import sys

sys.modules.update(dict.fromkeys(["modeling_mybert", "tokenization", "mybert"]))  # importing them now fails
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer, logging

logging.set_verbosity_error()
logging.disable_progress_bar()
folder = sys.argv[1]
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModelForPreTraining.from_pretrained(folder, trust_remote_code=True).eval()
for text in {masked!r}:
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).prediction_logits[inputs.input_ids == tokenizer.mask_token_id]
    top = logits.softmax(-1).topk(4)
    guesses = zip(tokenizer.convert_ids_to_tokens(top.indices[0]), top.values[0])
    print(f"  {{text:<64}}", "  ".join(f"{{token}} {{share:.2f}}" for token, share in guesses))
for first, second in {pairs!r}:
    with torch.no_grad():
        logits = model(**tokenizer(first, second, return_tensors="pt")).seq_relationship_logits
    print(f"  P(next sentence) = {{logits.softmax(-1)[0, 0]:.2f}}  {{first}} | {{second}}")
"""
_MASKED = [
    "If the file does not exist, an error is [MASK].",
    "Sort the values in ascending [MASK].",
    "Compute the mean and the standard [MASK] of the array.",
    "The number of rows and [MASK] of the matrix.",
    "The default value is [MASK].",
]
_PAIRS = [
    ("Open the file and return a file object.", "If the file cannot be opened, an OSError is raised."),
    ("Open the file and return a file object.", "The complex cosine is defined on the whole plane."),
    ("Sort the list in place.", "The sort is stable: equal elements keep their order."),
    ("Sort the list in place.", "The server sends a response to the client."),
]
_MEASURING = 4.0  # seconds
_PACKAGES = ("numpy", "scipy", "pandas", "sklearn")  # dependencies, so that they are installed


@dataclass
class QuickstartSettings(TextOptions, ResumeOptions):
    output: str = declare.output("quickstart", "Folder for the tokenizer, the corpus and the model.", writes=FOLDERS)
    text: list[str] = declare.data(
        default_factory=lambda: ["python-docs", *(f"python-docs:{name}" for name in _PACKAGES)],
        help="Text, as in `mybert corpus`.",
        reads=TEXTS,
    )
    max_steps: int = declare.training(2400, "Optimizer steps of pretraining (1 or more).", least=1)
    seed: int = declare.seeds(0, "Random seed (0 or more).")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "language", is_language(self.language), LANGUAGES)
        check(self, "text", STDIN not in self.text, "files: standard input can be read only once")
        check(self, "seed", 0 <= self.seed < 2**32, "0 or more and below 2**32")


def quickstart(settings: QuickstartSettings) -> Path:
    """Trains a tokenizer, builds examples, pretrains, evaluates and loads the model in a clean process.

    Returns:
        The folder of the model.

    Raises:
        UserError: the output folder exists, or with `resume` its contents have another text or seed, or its model
            other examples.
        Preempted: SIGTERM or Ctrl-C stopped the training after a checkpoint was saved.
    """
    from mybert.reports.write import add_report

    started = time.perf_counter()
    output = Path(settings.output)
    uncased, strip_accents = normalization(settings.language, settings.uncased, settings.strip_accents)
    settings = dataclasses.replace(settings, uncased=uncased, strip_accents=strip_accents)
    tokenizer, corpus, model = (str(output / name) for name in ("tokenizer", "corpus", "model"))

    with _naming_resume(output):
        print("\n1. train a WordPiece vocabulary", flush=True)
        if not (settings.resume and has_vocabulary_of(settings, tokenizer)):
            build_vocabulary(settings, tokenizer, 6144)
        print("\n2. build MLM and NSP examples", flush=True)
        _build_corpus(settings, tokenizer, corpus)
        print("\n3. pretrain, with evaluation on held-out documents", flush=True)
        _pretrain(settings, corpus, model)
        add_report(model)
        print("\n4. load by AutoModelForPreTraining and AutoTokenizer in a process without mybert", flush=True)
        load_in_clean_process(Path(model))
    title = "time since --resume" if settings.resume else "total time of all stages"
    rows = [(title, duration(time.perf_counter() - started)), ("seed", settings.seed)]
    print_table("Quickstart", rows)
    return Path(model)


@contextlib.contextmanager
def _naming_resume(output: Path) -> Iterator[None]:
    """Says how to continue after a Ctrl-C that `StopOnSignal` does not handle."""
    try:
        yield
    except KeyboardInterrupt:
        call = resuming_call("quickstart")
        print(f"\nto continue with the vocabulary and examples in {output}, if finished:\n  {call}", file=sys.stderr)
        raise


def _build_corpus(settings: QuickstartSettings, tokenizer: str, corpus: str) -> None:
    from mybert.reports.findings import warning_lines

    if settings.resume and has_examples_of(settings, corpus, ("seed",)):
        return
    is_documentation = all(map(is_python_docs, settings.text))
    print("splitting the documents into sentences and tokens", flush=True)
    documents: dict[str, Any] = {"validation_share": 0.05}
    if not is_documentation:
        per_file = is_document_per_file(settings.text)
        documents = division(measure_text(settings, per_file), per_file)
    build_examples(settings, tokenizer, corpus, max_length=64, dupe_factor=3, seed=settings.seed, **documents)
    if not is_documentation:
        for line in warning_lines(Path(corpus)):
            print(line)
    else:
        print("Examples have at most 64 tokens to save time, so many are truncated.")
        print("Similar functions share passages: a tenth of the held-out passages also occur in training examples.")


def _pretrain(settings: QuickstartSettings, corpus: str, model: str) -> None:
    from mybert.pretraining.arguments import PretrainingArguments
    from mybert.pretraining.planning.rules import budget_rules
    from mybert.pretraining.run import Variant, pretrain
    from mybert.pretraining.settings import PretrainSettings

    finished = read_manifest(model) if settings.resume and Path(model).is_dir() else {}
    if finished.get("complete"):
        if finished["inputs"].get("corpus", {}).get("sha256") != fingerprint(Path(corpus) / MANIFEST):
            raise UserError(f"{model} was trained on other examples than {corpus}; start again with --overwrite")
        print(f"the model in {model} is finished: {counted(finished['counts']['steps'], 'step')}")
        return
    choices = PretrainSettings(
        corpus=corpus,
        output=model,
        size="tiny",
        dropout=0.0,
        initializer_range=0.08,
        initial_weights="text",
        start_mlm_probability=0.3,
        max_tokens_per_batch=2048,
        overwrite=settings.overwrite,
        resume=settings.resume,
    )
    # a resumed run keeps its optimizer
    choices.optimizer = finished.get("settings", {}).get("optimizer") or _faster_optimizer(choices)
    rule = "learning_rate" if choices.optimizer == "muon" else "adamw_learning_rate"
    arguments = PretrainingArguments(
        output_dir=model,
        max_steps=settings.max_steps,
        learning_rate=budget_rules()["by_size"][rule]["values"]["tiny"],
        warmup_steps=0.03,
        logging_steps=min(100, max(1, settings.max_steps // 24)),
        eval_strategy="steps",
        eval_steps=0.2,
        save_strategy="no",
        seed=settings.seed,
    )
    pretrain(choices, arguments, Variant(command="quickstart"))


def _faster_optimizer(settings: "PretrainSettings") -> str:
    """Muon, unless its steps take so long on this machine that AdamW is better."""
    from mybert.pretraining.arguments import PretrainingArguments
    from mybert.pretraining.corpus_loading import Corpus
    from mybert.pretraining.planning.candidates import FLOAT, effective_tokens
    from mybert.pretraining.planning.measurement import measure_steps

    arguments, names = PretrainingArguments(output_dir=settings.output), ["muon", "adamw"]
    assert settings.corpus is not None and settings.max_tokens_per_batch is not None  # `_pretrain` gives both
    batch, corpus = settings.max_tokens_per_batch, Corpus.load(settings.corpus)
    times = measure_steps(settings, arguments, corpus, batch, _MEASURING, types=[FLOAT], optimizers=names)
    speeds = {name: times.tokens_per_second(FLOAT, name, batch) for name in names}
    chosen = max(names, key=lambda name: effective_tokens(speeds[name], name))
    measured = " and ".join(f"{speed:,.0f} with {name}" for name, speed in speeds.items())
    print(f"measured tokens per second: {measured}; training with {chosen}")
    return chosen


def load_in_clean_process(model: Path) -> None:
    """Prints fill-mask and next-sentence predictions of the folder `model`, from a process without mybert."""
    script = _CLEAN_PROCESS.format(masked=_MASKED, pairs=_PAIRS)
    subprocess.run([sys.executable, "-P", "-c", script, str(model)], check=True)
