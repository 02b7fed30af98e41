"""Settings of `mybert demo`."""

from dataclasses import dataclass
from pathlib import Path

from mybert.retrieval.settings import CHECKPOINT_OR_INDEX
from mybert.settings import declare
from mybert.settings.declare import check, setting
from mybert.settings.shared import AddressOptions, DeviceOption


@dataclass
class DemoSettings(AddressOptions, DeviceOption):
    """Models and address of the page."""

    models: list[str] = setting(
        default_factory=list,
        positional=True,
        help="Folders or Hub names of checkpoints with any head, or indexes of `mybert index`. Models with the same "
        "head are shown side by side.",
        reads=CHECKPOINT_OR_INDEX,
    )
    port: int = declare.service(7860, "Port; 0 takes a free one.", kw_only=True, within="[0, 65535]")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "models", len(set(map(Path, self.models))) == len(self.models), "each checkpoint once")
