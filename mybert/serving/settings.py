"""Settings of `mybert serve`."""

from dataclasses import dataclass

from mybert.common.errors import UserError
from mybert.common.settings import MODEL, POOLING_MODES, DeviceOptions, check, check_choices, setting
from mybert.retrieval.settings import CHECKPOINT_OR_INDEX, is_index

API_KEY = "MYBERT_API_KEY"
"""Environment variable with the API key."""


@dataclass
class ServeSettings(DeviceOptions):
    """Model, address and limits of the service."""

    model: str = setting(
        "",
        "Folder or Hub name of a checkpoint with any head, or an index of `mybert index`.",
        positional=True,
        reads=CHECKPOINT_OR_INDEX,
    )
    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 allows other computers to connect.")
    port: int = setting(8080, "Port of the service; 0 takes a free one.")
    api_key: str | None = setting(
        None,
        "API key that requests must send as `Authorization: Bearer KEY` (default: the environment variable "
        f"{API_KEY}, which is safer because command lines are visible to other users; no key if both are missing).",
    )
    pooling: str | None = setting(
        None,
        "Vector of a text: mean, max, … over its tokens, or the pooler output (default: the modules of a sentence "
        "encoder, otherwise mean).",
        choices=(*POOLING_MODES, "pooler"),
    )
    long_texts: str = setting(
        "refuse",
        "Embeddings of texts with more than --max-length tokens: refuse, truncate, or average over windows. A "
        "request can ask for truncation. Task heads follow the options in the checkpoint, as `mybert predict` does.",
        choices=("refuse", "truncate", "window"),
    )
    reranker: str | None = setting(
        None, "Of an index: cross-encoder that sorts the best passages of a search anew.", reads=MODEL
    )
    max_length: int | None = setting(
        None, "Maximum tokens of a text, special tokens included (default: the checkpoint's).", least=3
    )
    max_wait: float = setting(
        3.0, "Maximum milliseconds that a batch waits for further requests; a single client never waits."
    )
    max_tokens: int = setting(
        131_072,
        "Maximum tokens of all accepted requests; further requests get status 429, a larger single request 413.",
        least=1,
    )
    max_requests: int = setting(512, "Maximum concurrent requests; further requests get status 429.", least=1)
    max_texts: int = setting(2048, "Maximum texts or rows per request.", least=1)
    max_bytes: int = setting(2_000_000, "Maximum bytes per request.", least=1)
    timeout: float = setting(
        60.0, "Seconds allowed for receiving a request, for answering it, and for accepted requests after a stop."
    )

    def __post_init__(self):
        check(self, "model", bool(self.model), "a folder or Hub name")
        check(self, "port", 0 <= self.port < 65536, "0 to 65535")
        check(self, "max_wait", 0 <= self.max_wait <= 1000, "0 to 1000")
        check(self, "timeout", 0 < self.timeout <= 86_400, "above 0 and at most 86400")
        check_choices(self)
        served = is_index(self.model)
        for name in ("pooling", "max_length") if served else ("reranker",):
            if getattr(self, name) is not None:
                has = "an index" if served else "a checkpoint"
                raise UserError(f"--{name.replace('_', '-')} has no effect on {has}; remove it")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable() and self.api_key):
            raise UserError("the API key must be one or more printable ASCII characters")  # never shown
