"""Settings of `mybert plan`."""

from dataclasses import dataclass

from mybert.common.quantities import Duration, Quantity
from mybert.settings import declare
from mybert.settings.declare import Options, check, check_effect, setting
from mybert.settings.shared import SIZES

_MIN, _MAX = 0.001, 10**9  # beyond are typing errors, and products that overflow a float
_LONGEST = 512  # positions of BERT


@dataclass
class PlanSettings(Options):
    """Model, text and devices. Several sizes or device counts print one line per combination."""

    tokens: Quantity = setting(help="Real tokens of the examples (one epoch), such as 3.3B.")
    peak_flops: Quantity | None = declare.hardware(
        None,
        "Peak floating point operations per second of one device, such as 400T (default: measured on this machine).",
    )
    time_budget: Duration | None = declare.training(
        None,
        "Print the expected result of each size and optimizer in this time, such as 1h, instead of the costs of "
        "--num-train-epochs.",
        decides=True,
    )
    size: list[str] = declare.model(default_factory=lambda: ["base"], help="Model sizes.", choices=SIZES)
    devices: list[int] = declare.hardware(
        default_factory=lambda: [1], help="Number of devices; several numbers are compared."
    )
    num_train_epochs: float = declare.training(1.0, "Epochs, above 0.")
    max_length: int = declare.data(128, "Tokens per sequence, from 1 to 512.")
    per_device_train_batch_size: int = declare.batches(32, "Sequences per device and forward pass, at least 1.")
    gradient_accumulation_steps: int = declare.batches(1, "Accumulated batches per optimizer step, at least 1.")
    vocab_size: int = declare.model(30_522, "Vocabulary size, at least 1.")
    bf16: bool = declare.hardware(True, "Compute in bfloat16; weights stay in float32.")
    mfu: float = declare.hardware(
        0.4, "Model FLOPs utilisation: share of --peak-flops that the run reaches, at most 1."
    )
    bandwidth: Quantity = declare.hardware(
        Quantity("50G"), "Network bandwidth of a device in bytes per second, such as 50G (default: 50G)."
    )
    memory: Quantity | None = declare.hardware(
        None, "Memory of a device in bytes, such as 80G; configurations that do not fit are marked."
    )
    price: float | None = declare.hardware(None, "Price per device and hour, in any currency, 0 or more.")

    @property
    def peak(self) -> float:
        """`peak_flops`, given or measured."""
        assert self.peak_flops is not None
        return self.peak_flops

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "size", bool(self.size), " or ".join(SIZES))
        check(
            self, "devices", bool(self.devices) and all(1 <= count <= _MAX for count in self.devices), f"1 to {_MAX:,}"
        )
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "vocab_size"):
            check(self, name, 1 <= getattr(self, name) <= _MAX, f"1 to {_MAX:,}")
        check(self, "max_length", 1 <= self.max_length <= _LONGEST, f"1 to {_LONGEST}")
        check(self, "mfu", _MIN <= self.mfu <= 1, f"{_MIN} to 1")
        check(self, "num_train_epochs", _MIN <= self.num_train_epochs <= _MAX, f"{_MIN} to {_MAX:,}")
        if self.time_budget is not None:
            check(self, "devices", len(self.devices) == 1, "one number with --time-budget")
            check_effect(self, "num_train_epochs memory price", False, "with --time-budget; leave it out")
        check(self, "price", self.price is None or 0 <= self.price <= _MAX, f"0 to {_MAX:,}")
