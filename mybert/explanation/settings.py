"""Settings of `mybert explain` and `Explainer`."""

from dataclasses import dataclass, field
from typing import ClassVar

from mybert.common.errors import UserError
from mybert.common.settings import FILE, MODEL, check, setting
from mybert.finetuning.settings import PredictorSettings, PredictSettings

INTEGRATED_GRADIENTS, OCCLUSION = METHODS = ("integrated-gradients", "occlusion")


@dataclass(kw_only=True)
class ExplainerSettings(PredictorSettings):
    """Settings of `Explainer`: the model and the method."""

    model: str = setting(
        "",
        "Folder or Hub name of a fine-tuned checkpoint, or of an encoder, to explain the similarity of two texts.",
        positional=True,
        reads=MODEL,
    )
    method: str = setting(
        INTEGRATED_GRADIENTS,
        "integrated-gradients (Sundararajan et al. 2017): attributions that sum to the change of the score when all "
        "words become [MASK]; occlusion: the change of the score when one word becomes [MASK].",
        choices=METHODS,
    )
    labels: list[str] = setting(
        default_factory=list, help="Labels or tags to explain (default: the predicted ones; of tags, all but O)."
    )
    steps: int | None = setting(
        None,
        "integrated-gradients: points of the integral (default: 16, doubled up to 256 until --tolerance is met).",
        least=1,
    )
    tolerance: float = setting(
        0.01, "integrated-gradients: largest completeness error, as a share of the sum of absolute attributions."
    )

    def __post_init__(self):
        super().__post_init__()
        self.labels = [self.labels] if isinstance(self.labels, str) else list(self.labels)
        check(self, "tolerance", self.tolerance > 0, "a positive number")
        for name in ("steps", "tolerance"):
            if getattr(self, name) != getattr(type(self), name) and self.method != INTEGRATED_GRADIENTS:
                raise UserError(f"--{name} has no effect without --method {INTEGRATED_GRADIENTS}; leave it out")


@dataclass(kw_only=True)
class ExplainSettings(ExplainerSettings, PredictSettings):
    """Model, rows, method and output of an explanation."""

    command: ClassVar[str] = "explain"
    formats: ClassVar[tuple[str, ...]] = (".html", ".jsonl")

    output: str = setting(
        "-",
        "File to write: .html, a page with coloured words; .jsonl, one line per row; `-` for JSON lines on standard "
        "output.",
        writes=FILE,
    )
    engine: str = field(default="local", init=False)
    resume: bool = field(default=False, init=False)
    spreadsheet_safe: bool = field(default=False, init=False)
    attention: int = setting(3, "Rows whose attention the page shows, from the first row on; 0 for none.", least=0)

    def __post_init__(self):
        super().__post_init__()
        if self.attention != type(self).attention and not self.output.endswith(".html"):
            raise UserError("--attention has no effect without --output .html; leave it out")
