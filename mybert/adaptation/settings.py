"""Settings of `mybert adapt` and `mybert trim`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mybert.common.errors import UserError, did_you_mean
from mybert.common.quantities import Duration
from mybert.settings import declare
from mybert.settings.declare import FOLDER, MODEL, ROWS, TEXTS, TRAINABLE, check, check_effect, setting
from mybert.settings.shared import OutputFolder, ProcessesOption, RunResumeOptions

NEW_WORDS = 1000
AUTO = "auto"
FREEZE = ("nothing", "encoder", "all")
_TEXTS = "files, folders, patterns or data sets as for `mybert corpus`"


def check_words(name: str) -> None:
    """Raises a UserError if there is no file of words `name`."""
    if not Path(name).exists():
        raise UserError(f"--words {name} does not exist{did_you_mean(name)}")
    if Path(name).is_dir():
        raise UserError(f"--words {name} is a folder; name a file with one word per line")


@dataclass(kw_only=True)
class TextSettings(ProcessesOption, OutputFolder):
    """Options that `adapt` and `trim` share: text, and rows whose texts are read."""

    task: str = declare.task("text-classification", "Task of --task-data; determines its columns.")
    columns: list[str] | None = declare.data(
        None, "Columns of --task-data without a usual name, as ROLE=COLUMN.", pairs=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs, task_data = getattr(self, "inputs"), getattr(self, "task_data")  # noqa: B009 - of each command
        if not inputs and not task_data:
            raise UserError("expected text: name files or folders, or rows by --task-data")
        check_effect(self, "columns task", task_data, "without --task-data")


@dataclass
class AdaptSettings(RunResumeOptions, TextSettings):
    """Settings of `adapt`; optimisation is in `PretrainingArguments`."""

    command: ClassVar[str] = "adapt"
    free: ClassVar[tuple[str, ...]] = ("eval_characters", "eval_strategy", "eval_steps")

    inputs: list[str] | None = declare.data(
        None, f"Text of the domain, required without --task-data: {_TEXTS}.", positional=True, reads=TEXTS
    )
    model: str = setting("", "MyBERT or BERT checkpoint to adapt (folder or Hub name).", reads=TRAINABLE)
    output: str = setting("", "Folder of the adapted model.", kw_only=True, writes=FOLDER)
    task_data: list[str] = declare.data(
        default_factory=list, help="Labelled rows whose texts are used as text of the domain.", reads=ROWS
    )
    new_words: int | str | None = declare.model(
        None,
        "Number of words and word pieces to add to the vocabulary; 0 keeps the vocabulary, auto adds words while each "
        "saves at least 1 of 20,000 tokens (default: 1000, or 0 with --words).",
    )
    words: str | None = declare.model(
        None,
        "File of words to add, one per line, before those of --new-words.",
        reads="mybert.adaptation.settings:check_words",
    )
    replay: list[str] = declare.data(
        default_factory=list,
        help=f"General text mixed into the training text to reduce forgetting: {_TEXTS}; a part is held out.",
        reads=TEXTS,
    )
    replay_share: float = declare.data(
        0.2, "Share of the training text that comes from --replay (0 to 0.9).", within="[0, 0.9]"
    )
    general: list[str] = declare.data(
        default_factory=list,
        help="General text for measuring forgetting (default: the held-out part of --replay).",
        reads=TEXTS,
    )
    freeze: str = declare.model(
        "nothing",
        "Weights that are not trained: none (nothing), the layers (encoder), or everything except the vectors of new "
        "words and a new head (all).",
        choices=FREEZE,
    )
    lora_rank: int | None = declare.model(
        None,
        "Rank of low-rank updates of the layers (LoRA), merged at the end; needs `pip install "
        "'.[lora]'` in the clone (default: no LoRA).",
        least=1,
    )
    time_budget: Duration | None = declare.training(
        None, "Time for preparation and training, such as 10m, 1h or 2h30m; replaces --max-steps.", decides=True
    )
    max_length: int | None = declare.data(
        None,
        "Maximum tokens of a training example, special tokens included, 8 or more (default: 128, or the length that "
        "the model was trained on if that is less).",
        least=8,
    )
    whole_word_masking: bool = declare.training(False, "Mask all tokens of a word together.")
    validation_share: float = declare.data(
        0.05, "Share of the documents of each text that is held out (0 to 0.5).", within="[0, 0.5]"
    )
    eval_characters: int = declare.evaluation(
        10_000,
        "Characters of each held-out text that are scored before and after training; 0 skips the comparison.",
        least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.new_words = str(self.new_words) if self.new_words is not None else "0" if self.words else str(NEW_WORDS)
        good = self.new_words == AUTO or (self.new_words.isascii() and self.new_words.isdecimal())
        check(self, "new_words", good, f"0 or more, or {AUTO}")
        if self.lora_rank is not None and self.freeze != FREEZE[0]:
            raise UserError(f"--lora-rank keeps the old weights already; leave out --freeze {self.freeze}")
        if self.new_words == "0" and not self.words and self.freeze == "all":
            reason = "there are no vectors of new words to train"
            raise UserError(f"--freeze all has no effect with --new-words 0: {reason}")
        check_effect(self, "replay_share", self.replay, "without --replay")
        self.check_files([*(self.inputs or ()), *self.replay, *self.general])

    @property
    def limit(self) -> int:
        """Number of chosen words at most."""
        return 10**9 if self.new_words == AUTO else int(self.new_words or 0)


@dataclass
class TrimSettings(TextSettings):
    command: ClassVar[str] = "trim"

    inputs: list[str] | None = declare.data(
        None, f"Text whose tokens are kept, required without --task-data: {_TEXTS}.", positional=True, reads=TEXTS
    )
    model: str = setting("", "MyBERT or BERT checkpoint with any head (folder or Hub name).", reads=MODEL)
    output: str = setting("", "Folder of the smaller model.", kw_only=True, writes=FOLDER)
    task_data: list[str] = declare.data(default_factory=list, help="Labelled rows whose tokens are kept.", reads=ROWS)
