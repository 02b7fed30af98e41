"""Settings of `mybert plan`."""

from dataclasses import dataclass

from mybert.common.quantities import Duration, Quantity
from mybert.settings import declare
from mybert.settings.declare import Options, check, check_effect, setting
from mybert.settings.shared import SIZES

_COUNT = "[1, 1e9]"  # beyond are typing errors, and products that overflow a float


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
        default_factory=lambda: [1], help="Number of devices; several numbers are compared.", within=_COUNT
    )
    num_train_epochs: float = declare.training(1.0, "Epochs, above 0.", within="[0.001, 1e9]")
    max_length: int = declare.data(128, "Tokens per sequence, from 1 to 512.", within="[1, 512]")
    per_device_train_batch_size: int = declare.batches(
        32, "Sequences per device and forward pass, at least 1.", within=_COUNT
    )
    gradient_accumulation_steps: int = declare.batches(
        1, "Accumulated batches per optimizer step, at least 1.", within=_COUNT
    )
    vocab_size: int = declare.model(30_522, "Vocabulary size, at least 1.", within=_COUNT)
    bf16: bool = declare.hardware(True, "Compute in bfloat16; weights stay in float32.")
    mfu: float = declare.hardware(
        0.4, "Model FLOPs utilisation: share of --peak-flops that the run reaches, at most 1.", within="[0.001, 1]"
    )
    bandwidth: Quantity = declare.hardware(
        Quantity("50G"), "Network bandwidth of a device in bytes per second, such as 50G (default: 50G)."
    )
    memory: Quantity | None = declare.hardware(
        None, "Memory of a device in bytes, such as 80G; configurations that do not fit are marked."
    )
    price: float | None = declare.hardware(
        None, "Price per device and hour, in any currency, 0 or more.", within="[0, 1e9]"
    )

    @property
    def peak(self) -> float:
        """`peak_flops`, given or measured."""
        assert self.peak_flops is not None
        return self.peak_flops

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "size", bool(self.size), " or ".join(SIZES))
        check(self, "devices", bool(self.devices), "at least one number")
        if self.time_budget is not None:
            check(self, "devices", len(self.devices) == 1, "one number with --time-budget")
            check_effect(self, "num_train_epochs memory price", False, "with --time-budget; leave it out")
