"""`mybert finetune --task retrieval` and `--task reranking`: queries and passages → a sentence-transformers model."""

import contextlib
import copy
import dataclasses
import math
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers import EarlyStoppingCallback, set_seed
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, IntervalStrategy

from modeling_mybert import use_for_bert
from mybert.artifacts.manifest import HISTORY, RESULTS, identity, versions, write_json
from mybert.common.errors import UserError, resuming_call
from mybert.common.tables import format_cell, print_table
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.settings import BATCH, FinetuneSettings
from mybert.finetuning.training import find_checkpoint
from mybert.inference.checkpoint import explain_unreadable
from mybert.retrieval.collections import OF_DOCUMENTS, read_texts
from mybert.retrieval.kinds import Kind, Retrieval, kind_of
from mybert.retrieval.pairs import ROLES, Pairs, judged_pairs, read_pairs
from mybert.retrieval.ranking import interval_of_mean, shown_interval
from mybert.retrieval.trainer import METRIC, HeldOutReranking
from mybert.retrieval.words_channel import planned_dimensions
from mybert.tasks.options import pairs as pairs_of
from mybert.training.arguments import explain_unusable, prepare_launch
from mybert.training.curves import CURVES, Panel, draw_curves
from mybert.training.options import decisive_arguments
from mybert.training.run_folder import RunFolder
from mybert.training.stopping import StopOnSignal, on_signals

STAGE = "finetune"
_RUNS = "runs"
_BATCHES = {"retrieval": BATCH, "reranking": 8}  # pairs; a reranker reads the negatives of each with its query too
_STEPS = 100  # at least, of few pairs
_SAMPLES = 1000  # of the bootstrap
_INPUTS = ("model", "validation", "queries", "judgements")


class Job(NamedTuple):
    """What a training needs.

    Attributes:
        train, held_out: pairs; `held_out` chooses the best checkpoint.
        mined: number of mined pairs by the rule that found them.
        documents: number of documents that were read.
        trains: whether the pairs are trained on; they only show what documents are like if the model gets a channel
            of words.
    """

    settings: FinetuneSettings
    arguments: FinetuningArguments
    kind: Kind
    train: Pairs
    held_out: Pairs
    mined: Counter[str]
    documents: int
    trains: bool = True

    @property
    def scored_queries(self) -> int:
        """The number of held-out queries that are scored."""
        return min(len(self.held_out.relevant()), self.kind.most_queries)


def train(settings: FinetuneSettings, arguments: FinetuningArguments | None = None) -> Path:
    """Trains a retriever or a reranker on rows, on pairs mined from documents, or on both.

    Returns:
        The folder of the model: a sentence-transformers folder that is also a BERT folder, with README.md,
        results.json and manifest.json; if pairs were trained on, also log.jsonl and training_curves.png.

    Raises:
        UserError: model, rows, settings and output do not fit together, and nothing was trained.
        Preempted: SIGTERM or Ctrl-C stopped the run after a checkpoint was saved.
    """
    arguments = FinetuningArguments(output_dir=settings.output) if arguments is None else copy.deepcopy(arguments)
    if arguments.per_device_train_batch_size is None:
        arguments.per_device_train_batch_size = _BATCHES[settings.task]
    prepare_launch(arguments, settings.output, STAGE)
    inputs = {name: getattr(settings, name) for name in _INPUTS if getattr(settings, name) is not None}
    inputs |= {f"train-{number}": name for number, name in enumerate(settings.train_files, 1)}
    inputs |= {f"documents-{number}": name for number, name in enumerate(settings.documents, 1)}
    folder = None
    if not settings.dry_run:
        folder = RunFolder(settings, STAGE, inputs.values())
        folder.keep_precision(arguments)
        known = {name: identity(path) for name, path in inputs.items()}
        folder.check_same(settings, known, arguments, decisive_arguments(arguments))
        if folder.was_complete:
            print(f"the run in {folder.path} is finished: nothing is left to compute")
            return folder.path
    set_seed(arguments.seed)
    with use_for_bert():
        job = _prepare(settings, arguments)
        _print_plan(job)
        if folder is None:
            return Path(settings.output)
        stop = StopOnSignal(STAGE)
        evaluator = job.kind.evaluator(job.held_out, job.train, job.arguments) if job.held_out.pairs else None
        trainer = _build_trainer(job, folder.path / _RUNS, stop, evaluator) if job.trains else None
        with folder.opened(trainer), _naming_resume():
            _train(job, folder, trainer, stop, evaluator)
    return folder.path


@contextlib.contextmanager
def _naming_resume() -> Iterator[None]:
    """Says how to continue after a Ctrl-C that `StopOnSignal` does not handle."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nto continue:\n  {resuming_call(STAGE)}", file=sys.stderr)
        raise


def _prepare(settings: FinetuneSettings, arguments: FinetuningArguments) -> Job:
    """Reads, mines and splits the pairs, loads the model, and completes the arguments."""
    with explain_unreadable(settings.model):
        kind = kind_of(settings, arguments)
    known = [*ROLES, *(OF_DOCUMENTS if settings.documents else ())]
    given = pairs_of("columns", settings.columns, "ROLE=COLUMN, such as query=question", known)
    columns = {role: name for role, name in given.items() if role in ROLES}
    rows = read_pairs(settings.train_files, columns, settings.errors) if settings.train else Pairs()
    mined, passages, documents = kind.mine(settings, arguments.seed) if settings.documents else (Pairs(), [], 0)
    if settings.queries and settings.judgements:
        corpus = read_texts(settings.documents, "documents", settings.errors, given)
        rows += judged_pairs(corpus, settings.queries, settings.judgements, settings.errors)
        passages, documents = corpus.passages(), len(corpus.ids)  # whole, as they were judged
    counts = Counter(pair.kind for pair in mined.pairs)
    pairs = rows + mined
    if settings.validation is not None:
        held_out = read_pairs([settings.validation], columns, settings.errors)
        if not held_out.pairs:
            raise UserError(
                f"--validation {settings.validation}: scores with a fraction do not say which passages answer; give "
                "pairs, or whole numbers"
            )
    else:
        basis = rows if rows.pairs else mined  # labels say more than mined pairs
        kept, held_out = basis.split(settings.share_held_out, kind.most_queries, arguments.seed)
        if basis is mined and not kept.pairs:  # of a single document, such as a book
            kept, held_out = mined, Pairs()
        pairs = kept + mined if rows.pairs else kept + rows
    has_rows = bool(rows.pairs or rows.scored)
    if has_rows and not kind.trains_on_mined:
        pairs = dataclasses.replace(pairs, pairs=pairs.by_origin()[0])
    if not pairs.pairs and not pairs.scored:
        raise UserError(
            "no pair is left to train on; give more rows or documents (nearly equal ones count once), or a smaller "
            "--validation-share"
        )
    pairs = kind.with_negatives(pairs, [*passages, *held_out.passages()], settings, arguments.seed)
    arguments = kind.arguments(arguments)
    trains = has_rows or kind.trains_on_mined
    if trains:
        _complete(settings, arguments, pairs, held_out, kind)
    return Job(settings, arguments, kind, pairs, held_out, counts, documents, trains)


def _complete(
    settings: FinetuneSettings, arguments: FinetuningArguments, pairs: Pairs, held_out: Pairs, kind: Kind
) -> None:
    """Chooses the arguments that depend on the data and the task."""
    if arguments.learning_rate is None:
        arguments.learning_rate = kind.learning_rate
        print(f"using --learning-rate {kind.learning_rate:g}, the default for {settings.task} with this model")
    rows = len(pairs.pairs) + len(pairs.scored)
    steps = math.ceil(rows / _pairs_per_step(arguments))
    if arguments.num_train_epochs is None:
        arguments.num_train_epochs = float(min(max(1, math.ceil(_STEPS / steps)), 10))
    compares = bool(held_out.pairs)
    if settings.patience and not (compares and arguments.eval_strategy != IntervalStrategy.NO):
        raise UserError("--patience counts evaluations of held-out queries, and there are none; leave it out")
    if not compares:
        arguments.eval_strategy, arguments.load_best_model_at_end = IntervalStrategy.NO, False
    arguments.metric_for_best_model = f"eval_{METRIC}" if compares else None
    arguments.greater_is_better = True if compares else None


def _print_plan(job: Job) -> None:
    rows: list[tuple[str, Any]] = [("documents", job.documents)] if job.documents else []
    rows += [(f"mined: {kind}", count) for kind, count in job.mined.items()]
    rows.append(("held-out queries", job.scored_queries))
    if job.kind.has_words:
        before, added = planned_dimensions(job.kind.model)
        rows.append(("dimensions of the vectors", f"{before} + {added} of words"))
    if job.trains:
        rows += [
            ("training pairs", len(job.train.pairs)),
            ("scored pairs", len(job.train.scored)),
            ("negatives", sum(len(pair.negatives) for pair in job.train.pairs)),
            ("pairs per step", _pairs_per_step(job.arguments)),
            ("epochs", job.arguments.num_train_epochs),
            ("steps", _steps(job)),
            ("learning rate", f"{job.arguments.learning_rate:g}"),
        ]
    print_table("Plan", rows)


def _pairs_per_step(arguments: FinetuningArguments) -> int:
    assert arguments.per_device_train_batch_size is not None  # `train` has chosen it
    return arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps


def _steps(job: Job) -> int:
    """The number of steps, as Trainer counts them."""
    arguments = job.arguments
    size = arguments.train_batch_size * arguments.world_size
    batches = sum(math.ceil(len(rows) / size) for rows in (job.train.pairs, job.train.scored))
    an_epoch = math.ceil(batches / arguments.gradient_accumulation_steps)
    return arguments.max_steps if arguments.max_steps > 0 else math.ceil(arguments.num_train_epochs * an_epoch)


def _build_trainer(job: Job, run: Path, stop: StopOnSignal, evaluator: Any) -> Any:
    """The trainer that will write to `run`: unusable arguments fail here, and nothing is written."""
    settings, kind, arguments = job.settings, job.kind, copy.deepcopy(job.arguments)
    with explain_unusable(), tempfile.TemporaryDirectory() as temporary:  # transformers creates it
        arguments.output_dir = temporary
        trainer = kind.trainer(
            job.train,
            settings,
            args=arguments,
            evaluator=evaluator,
            callbacks=[EarlyStoppingCallback(settings.patience)] if settings.patience else None,
            stop=stop,
        )
        trainer.args.output_dir = str(run)
        trainer.check_setup()
    return trainer


def _train(job: Job, folder: RunFolder, trainer: Any, stop: StopOnSignal, evaluator: Any) -> None:
    kind, run = job.kind, folder.path / _RUNS
    scores: dict[str, dict[str, Any]] = {}

    def evaluate(name: str) -> None:
        if evaluator:
            model = "start model" if name == "start" else "result"
            print(f"scoring the {model} on {job.scored_queries:,} held-out queries", flush=True)
            scores[name] = _with_interval(evaluator(kind.model), evaluator.of_queries)
            if isinstance(evaluator, HeldOutReranking):
                scores.update({by: _with_interval({METRIC: of.mean()}, of) for by, of in evaluator.beside.items()})

    if trainer:
        with on_signals(stop.ask):
            trainer.run(find_checkpoint(run), (lambda: evaluate("start")) if kind.has_start else None)
    else:
        evaluate("start")
    if isinstance(kind, Retrieval) and kind.has_words:
        print("reading the words of the documents", flush=True)
        kind.add_words(job.arguments.seed)
    evaluate("held_out")
    if evaluator:
        _print_scores(job, scores)
    kind.save(folder.path)
    _write_results(job, folder, _amounts(job, folder, trainer), scores)
    for checkpoint in run.glob(f"*{PREFIX_CHECKPOINT_DIR}-*"):
        shutil.rmtree(checkpoint)


def _with_interval(metrics: dict[str, float], of_queries: np.ndarray) -> dict[str, Any]:
    """Metrics, and the 95% interval of the mean of `METRIC` over queries."""
    return {"metrics": metrics, "intervals_95": {METRIC: interval_of_mean(of_queries, _SAMPLES, seed=0)}}


def _print_scores(job: Job, scores: dict[str, dict[str, Any]]) -> None:
    title = f"nDCG@10 of {job.scored_queries:,} held-out queries"
    if not job.held_out.by_origin()[0]:
        title += ", mined from the documents"
    rows = []
    names = {"start": "start", "finished": "held_out"}
    if "bm25" in scores:
        names = {"BM25": "bm25", "BM25 and the start model": "start"}
        names |= {"BM25 and the reranker": "held_out", "the reranker alone": "alone"}
    for name, key in names.items():
        if key not in scores:
            continue
        shown = shown_interval(scores[key]["intervals_95"][METRIC])
        rows.append((name, format_cell(scores[key]["metrics"][METRIC]), shown))
    print_table(title, rows, ("", "nDCG@10", "95% interval"))


def _amounts(job: Job, folder: RunFolder, trainer: Any) -> dict[str, Any]:
    """How much was trained; writes its log and curves."""
    if not trainer:
        return {"steps": 0}
    state, output = trainer.state, folder.path
    if (output / _RUNS / HISTORY).is_file():
        shutil.copyfile(output / _RUNS / HISTORY, output / HISTORY)
    draw_curves(
        state.log_history,
        [Panel("loss", "loss", "eval_loss"), Panel("nDCG@10", None, f"eval_{METRIC}")],
        output / CURVES,
    )
    return {
        "steps": state.global_step,
        "best_step": (job.arguments.load_best_model_at_end and state.best_global_step) or state.global_step,
        "seconds": round(trainer.metrics.seconds, 3),
        "tokens_seen": state.num_input_tokens_seen,
    }


def _write_results(job: Job, folder: RunFolder, amounts: dict[str, Any], scores: dict[str, Any]) -> None:
    settings, output = job.settings, folder.path
    counts = {
        "train": (len(job.train.pairs) + len(job.train.scored)) * job.trains,
        "held_out_queries": job.scored_queries,
        "rows_left_out": job.train.left_out,
    }
    write_json(
        output / RESULTS,
        {
            "task": settings.task,
            "metric": METRIC,
            **scores,
            "best": {**amounts, "learning_rate": job.arguments.learning_rate},
            "pairs": {**counts, "mined": job.mined},
            "documents": job.documents,
            "settings": dataclasses.asdict(settings),
            "training_arguments": job.arguments.to_dict(),
            "versions": versions(),
        },
    )
    folder.finish(counts=counts, training=amounts, metrics={name: one["metrics"] for name, one in scores.items()})
