"""`mybert adapt`: add words of a domain to a BERT and continue its pretraining on text of the domain."""

import copy
import dataclasses
import functools
import gc
import itertools
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainingArguments, set_seed

from modeling_mybert import MyBertForPreTraining
from mybert.adaptation.comparison import held_out_scores, nearest_tokens, print_adaptation
from mybert.adaptation.preparation import CORPUS, DOMAIN, GENERAL, START, prepare
from mybert.adaptation.settings import AdaptSettings, TrimSettings, check_words
from mybert.adaptation.texts import passages, read_texts
from mybert.adaptation.trainable import freeze_encoder, low_rank, new_rows_only
from mybert.artifacts.manifest import MANIFEST, RESULTS, identity, read_manifest, write_json
from mybert.artifacts.staging import empty_folder
from mybert.common.errors import UserError
from mybert.common.json_io import read_json_object
from mybert.inference.checkpoint import open_checkpoint
from mybert.io.sources import describe_sources, find_sources
from mybert.pretraining.arguments import PretrainingArguments, check_schedule_settings, given_options
from mybert.pretraining.run import Adjust, Variant, pretrain
from mybert.pretraining.settings import PretrainSettings
from mybert.rows.tables import MissingColumns
from mybert.scoring.scorer import Scorer
from mybert.tasks import task_class
from mybert.tasks.reading import read_split
from mybert.training.options import decisive_arguments
from mybert.training.run_folder import RunFolder
from tokenization import MyBertTokenizer

STAGE = "adapt"
_WORK, _FACTS, _MODEL = "work", "adaptation.json", "model"
_NEIGHBOURS = 10
"""Number of new words whose nearest tokens are reported."""


def adapt(settings: AdaptSettings, arguments: TrainingArguments | None = None) -> Path:
    """Adds words of a domain to a BERT, continues pretraining on its text, and compares the model before and after.

    Args:
        settings: model, texts, new words and output.
        arguments: how to train (default: `PretrainingArguments`).

    Returns:
        The folder: a model as `pretrain` writes it. The entry `adaptation` of its results.json has the new words, and
        the scores on held-out text before and after.

    Raises:
        UserError: an input cannot be used, or the text has no new word; nothing was written.
        Preempted: SIGTERM or Ctrl-C stopped the training after a checkpoint was saved.
    """
    arguments = PretrainingArguments(output_dir=settings.output) if arguments is None else copy.deepcopy(arguments)
    started = time.monotonic()
    if settings.time_budget is not None:
        check_schedule_settings(_training_settings(settings, Path()), arguments)
    keeps = "--lora-rank" if settings.lora_rank is not None else "--freeze all" if settings.freeze == "all" else None
    if keeps and arguments.weight_decay and "weight_decay" in given_options(settings, arguments):
        raise UserError(f"--weight-decay has no effect with {keeps}, which keeps the old vectors; leave it out")
    if PartialState().num_processes > 1:
        raise UserError("mybert adapt supports one process only; start it without torchrun")
    if settings.words:
        check_words(settings.words)
    names = settings.inputs or [], settings.task_data, settings.replay, settings.general
    inputs = [settings.model, settings.words, *itertools.chain(*names)]
    folder = RunFolder(settings, STAGE, inputs)
    folder.check_same(settings, _describe_inputs(settings), arguments, decisive_arguments(arguments))
    output, work = folder.path, folder.path / _WORK
    if folder.was_complete:
        shutil.rmtree(work, ignore_errors=True)  # of a run that was killed at its very end
        print(f"the run in {settings.output} is finished: no step is left to train")
        return output
    with folder.opened(empty=functools.partial(_begin, output)):
        try:
            facts = _prepared(settings, arguments, work)
            counts, new_ids = facts.pop("counts"), facts.pop("new_ids")
            _train(settings, arguments, work, new_ids, facts["new_head"], started)
        except Exception:  # for example a text without a new word, or a time budget that is too short
            if not (work / _MODEL).exists():
                _leave_as_it_was(output)
            raise
        facts |= _compare(settings, work, new_ids, facts["new_head"])
        results = _publish(settings, output, facts)
        counts |= {"steps": results["steps"], "tokens_seen": results["tokens_seen"]}
        folder.finish(counts=counts, metrics=results["metrics"], adaptation=facts["held_out"])
        gc.collect()  # the trainer refers to itself; Windows removes no file that is still mapped
        shutil.rmtree(work)
    print_adaptation(facts)
    return output


def _begin(output: Path) -> None:
    """Empties the output folder. A finished model stays until it is replaced; its manifest is in the work folder."""
    work = output / _WORK
    folder = work if (work / MANIFEST).is_file() else output  # of a model that a killed run was to replace
    if not read_manifest(folder).get("complete"):
        empty_folder(output)
        return
    manifest = (folder / MANIFEST).read_bytes()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / MANIFEST).write_bytes(manifest)


def _leave_as_it_was(output: Path) -> None:
    """Removes a run that has trained nothing; a model that it was to replace stays."""
    if (output / _WORK / MANIFEST).is_file():
        (output / _WORK / MANIFEST).replace(output / MANIFEST)
        shutil.rmtree(output / _WORK)
    else:
        shutil.rmtree(output.resolve())


def _describe_inputs(settings: AdaptSettings) -> dict[str, dict[str, Any]]:
    inputs = {"model": identity(settings.model)}
    for kind, names in (("input", settings.inputs or []), ("replay", settings.replay), ("general", settings.general)):
        sources = describe_sources(find_sources(names))
        inputs |= {name.replace("input", kind, 1): entry for name, entry in sources.items()}
    inputs |= {f"task_data-{number}": identity(name) for number, name in enumerate(settings.task_data)}
    return inputs | ({"words": identity(settings.words)} if settings.words else {})


def _prepared(settings: AdaptSettings, arguments: TrainingArguments, work: Path) -> dict[str, Any]:
    """What is known of model, corpus and held-out texts in `work`, which are made where a resumed run lacks them."""
    if not (work / _FACTS).is_file():
        work.mkdir(exist_ok=True)
        set_seed(arguments.seed)  # of a new head
        write_json(work / _FACTS, prepare(settings, work, task_texts(settings), arguments.seed))
    return read_json_object(work / _FACTS, "start again with --overwrite")


def task_texts(settings: AdaptSettings | TrimSettings) -> Iterator[str]:
    """Yields the texts of each row of --task-data as one document; none of a row without text."""
    for name in settings.task_data:
        kind = task_class(settings.task)
        # reading texts needs no configuration of a model
        task = kind(kind.Options.of({"columns": settings.columns}), None)  # type: ignore[arg-type]
        try:
            split = read_split(name, task, labelled=False)
        except MissingColumns as error:
            if settings.task != type(settings).task:
                raise
            raise UserError(f"{error}; or name another task by --task") from error
        for row in split.rows:
            columns = [value if isinstance(value, list) else [value] for value in row.values()]
            texts = [" ".join(word for word in words if isinstance(word, str)) for words in columns]
            if text := "\n".join(filter(None, texts)).strip():
                yield text


def _train(
    settings: AdaptSettings,
    arguments: TrainingArguments,
    work: Path,
    new_ids: list[int],
    new_head: bool,
    started: float,
) -> None:
    """Trains the model in the folder `_MODEL`."""
    choices = _training_settings(settings, work)
    if read_manifest(choices.output).get("complete"):  # before an interruption
        return
    adjust: Adjust | None = None
    if settings.lora_rank is not None:
        adjust = low_rank(settings.lora_rank, new_ids, new_head)
    elif settings.freeze != "nothing":
        adjust = freeze_encoder if settings.freeze == "encoder" else new_rows_only(new_ids, new_head)
    if adjust is not None and adjust is not freeze_encoder:
        arguments.weight_decay = 0.0  # it would change the old rows of the table
    arguments.output_dir = choices.output
    # a time budget would choose these for training from random weights
    fixed = ("optimizer", "learning_rate")
    pretrain(choices, arguments, Variant(adjust=adjust, command=STAGE, fixed=fixed), started)


def _training_settings(settings: AdaptSettings, work: Path) -> PretrainSettings:
    output = work / _MODEL
    return PretrainSettings(
        corpus=str(work / CORPUS),
        output=str(output),
        init_from=str(work / START),
        whole_word_masking=settings.whole_word_masking,
        keep_checkpoints=0,
        time_budget=settings.time_budget,
        resume=(output / MANIFEST).is_file(),
    )


def _compare(settings: AdaptSettings, work: Path, new_ids: list[int], new_head: bool) -> dict[str, Any]:
    """Scores on held-out text, and the nearest tokens of new words, before and after training."""
    names = {"before": settings.model, "after": str(work / _MODEL)}
    held_out: dict[str, dict[str, Any]] = {}
    for when, name in names.items():
        has_head = settings.eval_characters and not (new_head and when == "before")
        scorer = Scorer(name) if has_head else None
        tokenizer = scorer.tokenizer if scorer else MyBertTokenizer.from_pretrained(name)
        for title, file in (("domain", DOMAIN), ("general", GENERAL)):
            if sample := passages(read_texts(work / file), settings.eval_characters or 1):
                scores = held_out_scores(tokenizer, scorer, read_texts(work / file), sample)
                held_out.setdefault(title, {})[when] = scores
    nearest: dict[str, dict[str, Any]] = {}
    for when, name in (("before", START), ("after", _MODEL)) if new_ids else ():
        opened = open_checkpoint(str(work / name), MyBertForPreTraining, new_head=True)
        table = opened.model.get_input_embeddings().weight
        for word, neighbours in nearest_tokens(table, opened.tokenizer, new_ids[:_NEIGHBOURS]).items():
            nearest.setdefault(word, {})[when] = neighbours
    return {"held_out": held_out, "nearest_tokens": nearest}


def _publish(settings: AdaptSettings, output: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Copies the trained model to the output folder and adds `facts` to its results.json, which is returned."""
    empty_folder(output, _WORK)
    ignored = shutil.ignore_patterns(MANIFEST, "checkpoint-*", "damaged-checkpoint-*")
    shutil.copytree(output / _WORK / _MODEL, output, dirs_exist_ok=True, ignore=ignored)
    results = json.loads((output / RESULTS).read_text(encoding="utf-8"))
    results |= {"settings": dataclasses.asdict(settings), "adaptation": facts}
    results["training_arguments"]["output_dir"] = settings.output
    write_json(output / RESULTS, results)
    return results
