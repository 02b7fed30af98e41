"""Settings of `mybert demo`."""

from dataclasses import dataclass

from mybert.common.errors import UserError
from mybert.common.settings import as_list, check, setting
from mybert.retrieval.settings import CHECKPOINT_OR_INDEX


@dataclass
class DemoSettings:
    """Models and address of the page."""

    models: list[str] = setting(
        default_factory=list,
        positional=True,
        help="Folders or Hub names of checkpoints with any head, or indexes of `mybert index`. Models with the same "
        "head are shown side by side.",
        reads=CHECKPOINT_OR_INDEX,
    )
    port: int = setting(7860, "Port of the page; 0 takes a free one.")
    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 allows other computers to connect.")
    device: str = setting("auto", "Device, such as cpu or cuda:1; auto: the GPU if there is one.")

    def __post_init__(self):
        self.models = as_list(self.models)
        check(self, "models", bool(self.models), "at least one checkpoint")
        check(self, "port", 0 <= self.port < 65536, "0 to 65535")
        if len(set(self.models)) < len(self.models):
            raise UserError(f"--models {' '.join(self.models)}: a checkpoint is named twice; name each once")
