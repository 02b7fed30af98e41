"""Settings of `mybert serve`."""

from dataclasses import dataclass

from mybert.common.errors import UserError
from mybert.retrieval.settings import CHECKPOINT_OR_INDEX, is_index
from mybert.settings import declare
from mybert.settings.declare import MODEL, check_effect, setting
from mybert.settings.shared import POOLING_MODES, AddressOptions, DeviceOptions

API_KEY = "MYBERT_API_KEY"
"""Environment variable with the API key."""


@dataclass
class ServeSettings(AddressOptions, DeviceOptions):
    """Model, address and limits of the service."""

    model: str = setting(
        "",
        "Folder or Hub name of a checkpoint with any head, or an index of `mybert index`.",
        positional=True,
        reads=CHECKPOINT_OR_INDEX,
    )
    api_key: str | None = declare.service(
        None,
        "API key that requests must send as `Authorization: Bearer KEY` (default: the environment variable "
        f"{API_KEY}, which is safer because command lines are visible to other users; no key if both are missing).",
    )
    pooling: str | None = declare.model(
        None,
        "Vector of a text: mean, max, … over its tokens, or the pooler output (default: the modules of a sentence "
        "encoder, otherwise mean).",
        choices=(*POOLING_MODES, "pooler"),
    )
    long_texts: str = declare.data(
        "refuse",
        "Embeddings of texts with more than --max-length tokens: refuse, truncate, or average over windows. A "
        "request can ask for truncation. Task heads follow the options in the checkpoint, as `mybert predict` does.",
        choices=("refuse", "truncate", "window"),
    )
    reranker: str | None = declare.task(
        None, "Of an index: cross-encoder that sorts the best passages of a search anew.", reads=MODEL
    )
    max_length: int | None = declare.data(
        None, "Maximum tokens of a text, special tokens included (default: the checkpoint's).", least=3
    )
    max_wait: float = declare.service(
        3.0,
        "Maximum milliseconds that a batch waits for further requests; a single client never waits.",
        within="[0, 1000]",
    )
    max_tokens: int = declare.service(
        131_072,
        "Maximum tokens of all accepted requests; further requests get status 429, a larger single request 413.",
        least=1,
    )
    max_requests: int = declare.service(512, "Maximum concurrent requests; further requests get status 429.", least=1)
    max_texts: int = declare.service(2048, "Maximum texts or rows per request.", least=1)
    max_bytes: int = declare.service(2_000_000, "Maximum bytes per request.", least=1)
    timeout: float = declare.service(
        60.0,
        "Seconds allowed for receiving a request, for answering it, and for accepted requests after a stop.",
        within="(0, 86400]",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        served = is_index(self.model)
        check_effect(self, "pooling max_length long_texts", not served, "on an index; remove it")
        check_effect(self, "reranker", served, "on a checkpoint; remove it")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable() and self.api_key):
            raise UserError("the API key must be one or more printable ASCII characters")  # never shown
