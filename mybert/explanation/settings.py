"""Settings of `mybert explain` and `Explainer`."""

from dataclasses import dataclass, field
from typing import ClassVar

from mybert.settings import declare
from mybert.settings.declare import FILE, MODEL, check_effect, setting
from mybert.tasks.settings import PredictorSettings, PredictSettings

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
    method: str = declare.task(
        INTEGRATED_GRADIENTS,
        "integrated-gradients (Sundararajan et al. 2017): attributions that sum to the change of the score when all "
        "words become [MASK]; occlusion: the change of the score when one word becomes [MASK].",
        choices=METHODS,
    )
    labels: list[str] = declare.task(
        default_factory=list, help="Labels or tags to explain (default: the predicted ones; of tags, all but O)."
    )
    steps: int | None = declare.task(
        None,
        "integrated-gradients: points of the integral (default: 16, doubled up to 256 until --tolerance is met).",
        least=1,
    )
    tolerance: float = declare.output(
        0.01,
        "integrated-gradients: largest completeness error, the difference between the sum of the attributions and the "
        "change of the score, as a share of the sum of absolute attributions.",
        within="(0, inf]",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        integrates = self.method == INTEGRATED_GRADIENTS
        check_effect(self, "steps tolerance", integrates, f"without --method {INTEGRATED_GRADIENTS}; leave it out")


@dataclass(kw_only=True)
class ExplainSettings(ExplainerSettings, PredictSettings):
    """Model, rows, method and output of an explanation."""

    command: ClassVar[str] = "explain"
    formats: ClassVar[tuple[str, ...]] = (".html", ".jsonl")

    output: str = declare.output(
        "-",
        "File to write: .html, a page with coloured words; .jsonl, one line per row; `-` for JSON lines on standard "
        "output.",
        writes=FILE,
    )
    engine: str = field(default="local", init=False)
    resume: bool = field(default=False, init=False)
    spreadsheet_safe: bool = field(default=False, init=False)
    attention: int = declare.output(
        3, "Rows whose attention the page shows, from the first row on; 0 for none.", least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_effect(self, "attention", self.output.endswith(".html"), "without --output .html; leave it out")
