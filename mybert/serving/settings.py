"""Settings of `mybert serve`."""

from dataclasses import dataclass

from mybert.common.errors import UserError
from mybert.common.settings import DTYPES, check, check_choices, setting

API_KEY = "MYBERT_API_KEY"
"""Environment variable with the API key."""

DEFAULT_PORT = 8080
POOLINGS = ("mean", "cls", "pooler")
LONG_TEXTS = ("refuse", "truncate", "window")


@dataclass
class ServeSettings:
    """Model, address and limits of the service.

    Raises:
        UserError: a value is out of range.
    """

    model: str = setting("", "Folder or Hub name of a checkpoint with any head.", positional=True)
    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 lets other computers in.")
    port: int = setting(DEFAULT_PORT, "Port of the service; 0 takes a free one.")
    api_key: str | None = setting(
        None,
        f"Key that requests must have as `Authorization: Bearer KEY` (default: the environment variable {API_KEY}, "
        "which other users of this computer cannot read; without it no key is needed).",
    )
    pooling: str = setting(
        "mean", "Vector of a text: the mean over its tokens, its [CLS] vector, or the pooler output.", choices=POOLINGS
    )
    long_texts: str = setting(
        "refuse",
        "What embeddings do with texts of more than max_length tokens: refuse them, truncate them, or average over "
        "windows. A request may ask for truncation. Task heads do what `mybert predict` does.",
        choices=LONG_TEXTS,
    )
    max_length: int | None = setting(
        None, "Maximum tokens of a text, special tokens included (default: the checkpoint's).", least=3
    )
    batch_tokens: int | None = setting(
        None, "Maximum tokens of a batch (default: 4096 on the CPU, 32768 elsewhere).", least=1
    )
    max_wait: float = setting(
        3.0, "Milliseconds that a batch waits for other requests. A client that sends one at a time never waits."
    )
    max_tokens: int = setting(
        131_072,
        "Maximum tokens of all accepted requests. Others are answered 429 with Retry-After, a larger one 413.",
        least=1,
    )
    max_requests: int = setting(512, "Maximum requests at a time; others are answered 429.", least=1)
    max_texts: int = setting(2048, "Maximum texts or rows of a request.", least=1)
    max_bytes: int = setting(2_000_000, "Maximum bytes of a request.", least=1)
    timeout: float = setting(
        60.0, "Seconds for sending a request, for its answer, and for accepted requests after a stop."
    )
    device: str = setting("auto", "Device, such as cpu or cuda:1; auto: the GPU if there is one.")
    dtype: str = setting("float32", "Data type of the model.", choices=DTYPES)

    def __post_init__(self):
        check(self, "model", bool(self.model), "a folder or Hub name")
        check(self, "port", 0 <= self.port < 65536, "0 to 65535")
        check(self, "max_wait", 0 <= self.max_wait <= 1000, "0 to 1000")
        check(self, "timeout", 0 < self.timeout <= 86_400, "above 0 and at most 86400")
        check_choices(self)
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable() and self.api_key):
            raise UserError("the API key must be one or more printable ASCII characters")  # never shown
