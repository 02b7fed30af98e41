"""Options that several commands share, one class for each fact."""

from mybert.common.errors import UserError
from mybert.settings import declare
from mybert.settings.declare import FOLDER, TEXTS, Options, setting, shared

ERRORS = ("strict", "skip")
"""What to do with invalid rows and documents: stop, or skip and count them."""

SIZES = ("tiny", "mini", "small", "medium", "base", "large")
"""The keys of `modeling_mybert.NAMED_SIZES`, whose import takes seconds."""

DTYPES = ("float32", "bfloat16", "int8")
"""Number formats for inference."""

POOLING_MODES = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Names of sentence-transformers for the ways from hidden states to the vector of a text."""

ENGINES = ("local", "ray")
"""Where the parts of a command are computed."""


@shared
class OverwriteOption(Options):
    """Of commands that may replace their output."""

    overwrite: bool = declare.output(False, "Replace OUTPUT.")


@shared
class OutputFolder(OverwriteOption):
    """The output of commands that write a folder."""

    output: str = setting("", "Output folder.", writes=FOLDER)


@shared
class ResumeOptions(OverwriteOption):
    """Of commands whose interrupted runs can be continued."""

    resume: bool = declare.output(False, "Keep finished parts after an interruption and continue from them.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.overwrite:
            raise UserError("--resume and --overwrite exclude each other: one keeps the run, one replaces it")

    def check_files(self, names: list[str]) -> None:
        """Raises a UserError if a resumed command would read standard input."""
        if self.resume and "-" in names:
            raise UserError("--resume cannot read standard input again; save it to a file")


@shared
class RunResumeOptions(ResumeOptions):
    """Of training runs, which continue from checkpoints."""

    resume: bool = declare.output(
        False, "Resume from the latest valid checkpoint in OUTPUT; start a new run if there is none."
    )


@shared
class RunOptions(RunResumeOptions):
    """Options of training runs."""

    attn_implementation: str | None = declare.model(
        None,
        "Attention backend: eager, sdpa, flex_attention, varlen_attn, flash_attention_2, … (default: sdpa). Falls "
        "back to sdpa for features that it does not support.",
    )
    dry_run: bool = declare.output(False, "Print the plan, measure a few steps, and write nothing.")


@shared
class TextFileOptions(Options):
    """Options of commands that read texts from files and data sets."""

    text_column: str = declare.data("text", "Text column of JSON, CSV, TSV, Parquet and data sets.")
    errors: str = declare.data(
        "strict", "Invalid lines stop the command (strict) or are skipped and counted (skip).", choices=ERRORS
    )


@shared
class TextInputs(TextFileOptions):
    """Texts, one in a line or row."""

    inputs: list[str] = setting(
        default_factory=list,
        positional=True,
        help="Files (.txt .md with one text per line, .jsonl .json .csv .tsv, also .gz and .zst; .parquet .xlsx), "
        "folders, patterns, data sets, or `-` for standard input with one text per line or JSON lines.",
        reads=TEXTS,
    )


@shared
class ProcessesOption(TextFileOptions):
    """Of commands that read text in several processes."""

    num_proc: int | None = declare.hardware(
        None,
        "Number of processes that read text; the result does not depend on it (default: number of CPU cores).",
        within="[1, 1024]",
    )


@shared
class CasingOptions(Options):
    """How text is normalised."""

    uncased: bool | None = declare.model(
        None,
        "Lower-case the text; --cased keeps upper case (default: only if --language is English).",
        negation="cased",
    )
    strip_accents: bool | None = declare.model(
        None, "Remove accents and other combining marks (default: only of lower-cased English)."
    )


@shared
class EngineOption(Options):
    """Of commands that Ray may compute."""

    engine: str = declare.hardware(
        "local",
        "This machine (local), or a Ray cluster whose nodes share the disks of model, inputs and OUTPUT (ray; address "
        "in RAY_ADDRESS; needs `pip install '.[ray]'` in the clone); the output is the same.",
        choices=ENGINES,
    )


@shared
class DeviceOption(Options):
    """Of commands that load a model."""

    device: str = declare.hardware("auto", "Device, such as cpu or cuda:1; auto: the GPU if there is one.")


@shared
class DeviceOptions(DeviceOption):
    """Options of commands that compute with a trained model."""

    dtype: str = declare.hardware(
        "float32", "Data type of the model; int8 needs an output of `mybert quantize`.", choices=DTYPES
    )
    max_tokens_per_batch: int | None = declare.batches(
        None, "Maximum tokens per batch (default: 2048 on the CPU, 16384 elsewhere).", within="[1, inf)"
    )


@shared
class AddressOptions(Options):
    """Of commands that listen on a port."""

    host: str = declare.service("127.0.0.1", "Address to listen on; 0.0.0.0 allows other computers to connect.")
    port: int = declare.service(8080, "Port; 0 takes a free one.", within="[0, 65535]")

    def refused(self, error: OSError) -> UserError:
        """The error of a command that cannot listen there."""
        return UserError(
            f"--host {self.host} --port {self.port}: {error.strerror or error}; name another --port, or 0 for a free "
            "one, or another --host, such as 127.0.0.1, or 0.0.0.0 for all"
        )
