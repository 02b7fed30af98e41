"""Settings of `Scorer` and `mybert score`."""

from dataclasses import dataclass
from pathlib import Path

from mybert.common.errors import UserError
from mybert.settings import declare
from mybert.settings.declare import FILE, MODEL, check, check_effect, setting
from mybert.settings.shared import DeviceOptions, OverwriteOption, TextInputs

MASKING = ("token", "within-word", "whole-word")


@dataclass
class ScoringSettings(DeviceOptions):
    """Settings of `Scorer`: the model and how texts are batched."""

    model: str = setting(
        "",
        "Folder or Hub name of a MyBERT or BERT checkpoint with a masked-language-model head.",
        positional=True,
        reads=MODEL,
    )
    max_length: int | None = declare.data(
        None,
        "Maximum tokens per sequence, special tokens included; longer texts are scored in overlapping windows "
        "(default: the model's maximum).",
        least=3,
    )


@dataclass
class ScoreSettings(TextInputs, OverwriteOption, ScoringSettings):
    output: str = setting(
        "",
        "Output file (.jsonl), one line per text with the other columns of its row; a column with a name that score "
        "writes itself, such as line, becomes input_line.",
        writes=FILE,
    )
    masking: str = declare.model(
        "token",
        "token: mask each token alone (Salazar et al. 2020); within-word: also mask the later tokens of its word "
        "(Kauf & Ivanova 2023); whole-word: mask 15% of the words of a text at once, for comparing models with "
        "different vocabularies.",
        choices=MASKING,
    )
    pairs: str | None = declare.data(
        None, "Two columns with minimal pairs, such as good,bad; counts how often the first text scores higher."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "output", Path(self.output).suffix == ".jsonl", "a file name with .jsonl")
        if self.pairs is not None:
            names = self.pairs.split(",")
            check(self, "pairs", len({*names}) == 2 == len(names) and all(names), "two columns such as good,bad")
            if self.masking == "whole-word":
                raise UserError("--pairs compares whole texts; use --masking token or within-word with it")
            check_effect(self, "text_column", False, "with --pairs; remove one of them")
