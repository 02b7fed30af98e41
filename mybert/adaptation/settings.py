"""Settings of `mybert adapt` and `mybert trim`."""

from dataclasses import dataclass

from mybert.common.errors import UserError
from mybert.common.settings import ERRORS, check, check_choices, check_least, check_resume, setting
from mybert.io.files import STDIN

NEW_WORDS = 1000
AUTO = "auto"
FREEZE = ("nothing", "encoder", "all")
_TEXTS = "files, folders, patterns or data sets as for `mybert corpus`"


@dataclass
class AdaptSettings:
    """Settings of `adapt`; optimisation is in `PretrainingArguments`.

    Raises:
        UserError: a value is out of range, or two of them contradict each other.
    """

    inputs: list[str] | None = setting(None, f"text of the domain: {_TEXTS}", positional=True)
    model: str = setting("", "MyBERT or BERT checkpoint to adapt (folder or Hub name)")
    output: str = setting("", "folder of the adapted model")
    task_data: list[str] | None = setting(None, "rows of a task, whose texts are read as text of the domain")
    task: str = setting("text-classification", "task of --task-data, which names its columns")
    columns: list[str] | None = setting(None, "columns of --task-data without a usual name, as ROLE=COLUMN")
    new_words: str | None = setting(
        None,
        "number of words and word pieces to add to the vocabulary; 0 keeps it, auto adds those that save 1 of 20,000 "
        "tokens (default: 1000, or 0 with --words)",
    )
    words: str | None = setting(None, "file of words to add, one per line, before those of --new-words")
    replay: list[str] | None = setting(
        None, f"general text that is mixed in against forgetting: {_TEXTS}; a part is held out"
    )
    replay_share: float = setting(0.2, "share of the training text that comes from --replay (0 to 0.9)")
    general: list[str] | None = setting(
        None, "general text on which forgetting is measured (default: the held-out part of --replay)"
    )
    freeze: str = setting(
        "nothing",
        "weights that keep their values: nothing, the layers (encoder), or all but the vectors of new words and a new "
        "head",
        choices=FREEZE,
    )
    lora_rank: int | None = setting(
        None, "train low-rank updates of the layers (LoRA), merged at the end; needs mybert[lora] (1 or more)"
    )
    time_budget: str | None = setting(
        None, "time for preparation and training, such as 10m, 1h or 2h30m, in place of --max-steps"
    )
    row_steps: int = setting(0, "steps before the others that train the vectors of new words alone (0 or more)")
    max_length: int = setting(128, "maximum tokens of a training example, special tokens included (8 or more)")
    whole_word_masking: bool = setting(False, "label all tokens of a word together")
    validation_share: float = setting(0.05, "share of the documents of each text that is held out (0 to 0.5)")
    eval_characters: int = setting(
        10_000, "characters of each held-out text that are scored before and after; 0 skips the comparison (0 or more)"
    )
    text_column: str = setting("text", "text column of JSON, CSV, TSV, Parquet and data sets")
    errors: str = setting(
        "strict", "invalid lines stop the command (strict) or are skipped and counted (skip)", choices=ERRORS
    )
    num_proc: int | None = setting(None, "number of processes that read text (default: number of CPU cores)")
    resume: bool = setting(False, "continue the run in OUTPUT from its latest checkpoint; start one if there is none")
    overwrite: bool = setting(False, "replace OUTPUT")

    def __post_init__(self):
        for name in ("inputs", "task_data", "columns", "replay", "general"):
            value = getattr(self, name) or []
            setattr(self, name, [value] if isinstance(value, str) else [str(item) for item in value])
        check(self, "model", bool(self.model), "a folder or Hub name")
        check(self, "output", bool(self.output), "a folder")
        if not self.inputs and not self.task_data:
            raise UserError("expected the text of the domain: name files or folders, or rows by --task-data")
        self.new_words = str(self.new_words) if self.new_words is not None else "0" if self.words else str(NEW_WORDS)
        good = self.new_words == AUTO or (self.new_words.isascii() and self.new_words.isdecimal())
        check(self, "new_words", good, f"0 or more, or {AUTO}")
        check_choices(self)
        check(self, "replay_share", 0 <= self.replay_share <= 0.9, "0 to 0.9")
        check(self, "validation_share", 0 <= self.validation_share <= 0.5, "0 to 0.5")
        check_least(self, "lora_rank", 1)
        check_least(self, "row_steps", 0)
        check_least(self, "max_length", 8)
        check_least(self, "eval_characters", 0)
        check_least(self, "num_proc", 1)
        check_resume(self)
        self._check_together()

    def _check_together(self) -> None:
        if self.lora_rank is not None and self.freeze != FREEZE[0]:
            raise UserError(f"--lora-rank keeps the old weights already; leave out --freeze {self.freeze}")
        if self.new_words == "0" and not self.words and (self.row_steps or self.freeze == "all"):
            option = "--row-steps" if self.row_steps else "--freeze all"
            raise UserError(f"{option} has no effect with --new-words 0: there are no vectors of new words to train")
        if STDIN in [*self.inputs, *self.replay, *self.general] and self.resume:
            raise UserError("--resume cannot read standard input again; save it to a file")
        if self.columns and not self.task_data:
            raise UserError("--columns has no effect without --task-data")

    @property
    def limit(self) -> int:
        """Number of chosen words at most."""
        return 10**9 if self.new_words == AUTO else int(self.new_words)


@dataclass
class TrimSettings:
    """Settings of `trim`.

    Raises:
        UserError: a value is out of range.
    """

    inputs: list[str] | None = setting(None, f"text that the model must still read: {_TEXTS}", positional=True)
    model: str = setting("", "MyBERT or BERT checkpoint with any head (folder or Hub name)")
    output: str = setting("", "folder of the smaller model")
    task_data: list[str] | None = setting(None, "rows of a task, all of whose texts the model must still read")
    task: str = setting("text-classification", "task of --task-data, which names its columns")
    columns: list[str] | None = setting(None, "columns of --task-data without a usual name, as ROLE=COLUMN")
    text_column: str = setting("text", "text column of JSON, CSV, TSV, Parquet and data sets")
    errors: str = setting(
        "strict", "invalid lines stop the command (strict) or are skipped and counted (skip)", choices=ERRORS
    )
    num_proc: int | None = setting(None, "number of processes (default: number of CPU cores)")
    overwrite: bool = setting(False, "replace OUTPUT")

    def __post_init__(self):
        for name in ("inputs", "task_data", "columns"):
            value = getattr(self, name) or []
            setattr(self, name, [value] if isinstance(value, str) else [str(item) for item in value])
        if not self.inputs and not self.task_data:
            raise UserError("expected text that the model must still read: name files or folders, or --task-data")
        if self.columns and not self.task_data:
            raise UserError("--columns has no effect without --task-data")
        check(self, "model", bool(self.model), "a folder or Hub name")
        check(self, "output", bool(self.output), "a folder")
        check_choices(self)
        check_least(self, "num_proc", 1)
