"""The data of a run: read, checked, described and turned into features."""

from dataclasses import dataclass

from datasets import Dataset

from mybert.common.errors import UserError
from mybert.finetuning.data.dataset_loading import Split, read_split
from mybert.finetuning.data.labels import find_label_typos
from mybert.finetuning.data.summary import overview, print_overview
from mybert.finetuning.data.validation import duplicate_rows, usable_rows
from mybert.finetuning.settings import FinetuneSettings
from mybert.finetuning.tasks.base import Task
from tokenization import MyBertTokenizer

_SHOWN = 5


@dataclass(frozen=True)
class RunData:
    """
    Attributes:
        splits: `train`, and `validation` and `test` where they are given; rows that can be used.
        train_features: what is trained on.
        validation_features: what checkpoints are compared on; None without validation rows.
        overview: what was printed of the splits; see `overview`.
        duplicates: a line for each two splits that share rows.
    """

    splits: dict[str, Split]
    train_features: Dataset
    validation_features: Dataset | None
    overview: dict[str, dict]
    duplicates: list[str]


def load_data(settings: FinetuneSettings, task: Task, tokenizer: MyBertTokenizer, verbose: bool = True) -> RunData:
    """Reads and checks all splits, takes the labels from the training rows, and prints what there is.

    Raises:
        UserError: a file cannot be read, or rows of it cannot be used.
    """
    train = read_split(settings.train, task, limit=settings.train_limit)
    task.trained_inputs = [name for name in task.inputs if name in train.rows.column_names]
    task.config.finetuned["inputs"] = task.trained_inputs
    others = {"validation": settings.validation, "test": settings.test}
    splits = {
        "train": train,
        **{split: read_split(name, task, split=split) for split, name in others.items() if name is not None},
    }
    duplicates = duplicate_rows(splits, task)
    splits["train"] = usable_rows(splits["train"], task, tokenizer, training=True, errors=settings.errors)
    try:
        task.configure(splits["train"].rows)
    except UserError as error:
        if settings.train_limit is None:
            raise
        sorted_rows = f"--train-limit takes the first {settings.train_limit:,}; are they sorted?"
        raise UserError(f"{error} ({sorted_rows})") from error
    for split in splits.keys() - {"train"}:
        splits[split] = usable_rows(splits[split], task, tokenizer, training=False, errors=settings.errors)
    if settings.class_weights and task.classes is None:
        raise UserError("--class-weights: expected one class for each text or token; these rows have other targets")
    found = overview(splits, task, tokenizer)
    if verbose:
        print_overview(found, task)
        alike = find_label_typos(found["train"]["balance"])
        more = [f"{len(alike) - _SHOWN:,} more labels look like others"] if len(alike) > _SHOWN else []
        for line in [*duplicates, *alike[:_SHOWN], *more]:
            print(f"warning: {line}")
    validation = splits.get("validation")
    return RunData(
        splits=splits,
        train_features=task.features(splits["train"].rows, tokenizer, training=True),
        validation_features=validation and task.features(validation.rows, tokenizer, training=False),
        overview=found,
        duplicates=duplicates,
    )
