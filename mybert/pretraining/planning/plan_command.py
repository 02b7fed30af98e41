"""`mybert plan`: time, memory, traffic and price of a pretraining run on given devices, by arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass

from modeling_mybert.configuration_mybert import NAMED_SIZES, MyBertConfig
from mybert.common.quantities import Quantity, duration, with_unit
from mybert.common.settings import check, setting
from mybert.common.tables import print_table
from mybert.corpus.disk_budget import TOKENS_A_BYTE
from mybert.pretraining.planning.flops_and_memory import ModelCosts
from mybert.pretraining.settings import PretrainingArguments, PretrainSettings

_BILLION = 10**9
_MIN, _MAX = 0.001, 10**9  # beyond are typing errors, and products that overflow a float
_CHECKPOINTS = PretrainingArguments.save_total_limit + 1  # one more while it is written


@dataclass
class PlanSettings:
    """Model, text and devices; several sizes or device counts print one line for each combination.

    Raises:
        UserError: a value is out of range.
    """

    tokens: Quantity = setting(help="Real tokens of the examples (one epoch), such as 3.3B.")
    peak_flops: Quantity = setting(
        help="Peak floating point operations per second of one device, such as 400T.", old_name="flops"
    )
    size: list[str] = setting(default_factory=lambda: ["base"], help=f"Model sizes: {', '.join(NAMED_SIZES)}.")
    devices: list[int] = setting(default_factory=lambda: [1], help="Numbers of devices, each at least 1.")
    num_train_epochs: float = setting(1.0, "Epochs, above 0.", old_name="epochs")
    max_length: int = setting(128, "Tokens per sequence, from 1 to 512.", old_name="length")
    per_device_train_batch_size: int = setting(32, "Sequences per device and forward pass, at least 1.")
    gradient_accumulation_steps: int = setting(1, "Accumulated batches per optimizer step, at least 1.")
    vocab_size: int = setting(30_522, "Vocabulary size, at least 1.")
    bf16: bool = setting(True, "Compute in 16 bits; weights stay in 32 bits.")
    mfu: float = setting(0.4, "Share of --peak-flops that the run reaches, at most 1; see docs/guides/scale-out.md.")
    bandwidth: Quantity = setting(Quantity("50G"), "Bytes per second that a device can send while it computes.")
    memory: Quantity | None = setting(None, "Memory of a device in bytes, such as 80G; marks what does not fit.")
    price: float | None = setting(None, "Price per device and hour in any currency, 0 or more.")

    def __post_init__(self):
        check(self, "size", set(self.size) <= NAMED_SIZES.keys(), " or ".join(NAMED_SIZES))
        check(self, "devices", all(1 <= count <= _MAX for count in self.devices), f"1 to {_MAX:,}")
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "vocab_size"):
            check(self, name, 1 <= getattr(self, name) <= _MAX, f"1 to {_MAX:,}")
        longest = MyBertConfig().max_position_embeddings
        check(self, "max_length", 1 <= self.max_length <= longest, f"1 to {longest}")
        check(self, "mfu", _MIN <= self.mfu <= 1, f"{_MIN} to 1")
        check(self, "num_train_epochs", _MIN <= self.num_train_epochs <= _MAX, f"{_MIN} to {_MAX:,}")
        check(self, "price", self.price is None or 0 <= self.price <= _MAX, f"0 to {_MAX:,}")


@dataclass(frozen=True)
class ParallelConfig:
    """One way to train a size on a number of devices.

    Attributes:
        settings: devices and data.
        size, devices: one of those in the settings.
        sharded: FSDP; otherwise each device holds a whole copy (DDP).
        checkpointing: gradient checkpointing.
    """

    settings: PlanSettings
    size: str
    devices: int
    sharded: bool
    checkpointing: bool

    @property
    def name(self) -> str:
        kind = "FSDP" if self.sharded else "DDP" if self.devices > 1 else "one device"
        return f"{kind}, checkpointing" if self.checkpointing else kind

    @property
    def costs(self) -> ModelCosts:
        s = self.settings
        config = MyBertConfig.from_size(self.size, vocab_size=s.vocab_size)
        return ModelCosts(config, s.max_length, s.max_length, PretrainSettings.mlm_probability, has_pairs=True)

    @property
    def forward_tokens(self) -> int:
        return self.settings.per_device_train_batch_size * self.settings.max_length

    @property
    def step_tokens(self) -> int:
        """Tokens per step, over all devices."""
        return self.forward_tokens * self.settings.gradient_accumulation_steps * self.devices

    @property
    def memory(self) -> dict[str, float]:
        return self.costs.memory(
            self.forward_tokens,
            devices=self.devices,
            sharded=self.sharded,
            checkpointing=self.checkpointing,
            half=self.settings.bf16,
        )

    @property
    def fits(self) -> bool:
        return self.settings.memory is None or sum(self.memory.values()) <= self.settings.memory

    @property
    def traffic(self) -> float:
        forwards = self.settings.gradient_accumulation_steps
        return self.costs.traffic(self.devices, self.sharded, self.settings.bf16, forwards)

    @property
    def compute_seconds(self) -> float:
        """Seconds of computation per step."""
        rate = self.settings.peak_flops * self.settings.mfu * self.devices
        return self.step_tokens * self.costs.executed_per_token(self.checkpointing) / rate

    @property
    def send_seconds(self) -> float:
        """Seconds of communication per step."""
        return self.traffic / self.settings.bandwidth

    @property
    def tokens_per_second(self) -> float:
        """Communication overlaps with computation; the longer of the two counts."""
        return self.step_tokens / max(self.compute_seconds, self.send_seconds)

    @property
    def mfu(self) -> float:
        """Share of the peak, counting useful operations only."""
        return self.costs.flops_per_token * self.tokens_per_second / (self.settings.peak_flops * self.devices)

    def seconds(self, tokens: float) -> float:
        return tokens / self.tokens_per_second

    def price(self, tokens: float) -> float | None:
        """None without --price."""
        price = self.settings.price
        return None if price is None else price * self.devices * self.seconds(tokens) / 3600


def parallel_configs(settings: PlanSettings, size: str, devices: int) -> list[ParallelConfig]:
    """From the fastest to the one that needs the least memory."""
    return [
        ParallelConfig(settings, size, devices, sharded, checkpointing)
        for sharded in ((False, True) if devices > 1 else (False,))
        for checkpointing in (False, True)
    ]


def main(settings: PlanSettings) -> None:
    combinations = [(size, devices) for size in settings.size for devices in settings.devices]
    if len(combinations) > 1:
        print_overview(settings, combinations)
    else:
        print_details(parallel_configs(settings, *combinations[0]))
    print_disk(settings)


def print_overview(settings: PlanSettings, combinations: Iterable[tuple[str, int]]) -> None:
    """Prints a line for each combination, in the fastest configuration that fits."""
    total, rows = settings.tokens * settings.num_train_epochs, []
    for size, devices in combinations:
        choices = parallel_configs(settings, size, devices)
        config = next((choice for choice in choices if choice.fits), choices[-1])
        rows.append(
            (
                *(size, devices, config.name if config.fits else "does not fit"),
                with_unit(sum(config.memory.values()), "B"),
                with_unit(config.traffic, "B"),
                with_unit(config.tokens_per_second, ""),
                f"{config.seconds(_BILLION) / 3600:.3g}",
                f"{config.seconds(total) / 3600:.3g}",
                *([] if settings.price is None else [f"{config.price(_BILLION):,.2f}", f"{config.price(total):,.0f}"]),
            )
        )
    columns = ["size", "devices", "mode", "memory", "sent", "tokens/s", "1B, h", "total, h"]
    columns += [] if settings.price is None else ["1B, price", "total, price"]
    print_table(f"{with_unit(total, ' tokens')} of training", rows, columns)


def print_details(choices: list[ParallelConfig]) -> None:
    """Prints one combination in full, a column for each configuration."""
    first = choices[0]
    settings, costs = first.settings, first.costs
    total = settings.tokens * settings.num_train_epochs
    flops = costs.flops_by_part()
    rows = [(part, with_unit(value, "FLOP"), f"{value / costs.flops_per_token:.1%}") for part, value in flops.items()]
    rows.append(("useful, total", with_unit(costs.flops_per_token, "FLOP"), "100.0%"))
    rows.append(("checkpointing adds", with_unit(costs.recomputed_per_token, "FLOP"), None))
    print_table(f"{first.size}, {costs.parameters:,} parameters", rows, ("operations", "per token", "share"))
    names = [config.name for config in choices]
    parts = [config.memory for config in choices]
    rows = [[part, *(with_unit(memory[part], "B") for memory in parts)] for part in parts[0]]
    rows.append(["total", *(with_unit(sum(memory.values()), "B") for memory in parts)])
    if settings.memory is not None:
        rows.append(
            [f"fits {with_unit(settings.memory, 'B')}", *("yes" if config.fits else "no" for config in choices)]
        )
    print_table(
        "Memory of the device" if first.devices == 1 else f"Memory per device, {first.devices:,} devices",
        rows,
        ["component", *names],
    )
    lines = {
        "tokens per step": lambda config: f"{config.step_tokens:,}",
        "steps": lambda config: f"{max(total / config.step_tokens, 1):,.0f}",
        "sent per step": lambda config: with_unit(config.traffic, "B"),
        "computing, s per step": lambda config: f"{config.compute_seconds:.3g}",
        "sending, s per step": lambda config: f"{config.send_seconds:.3g}",
        "tokens per second": lambda config: f"{config.tokens_per_second:,.0f}",
        "MFU": lambda config: f"{config.mfu:.1%}",
        "1B tokens": lambda config: duration(config.seconds(_BILLION)),
        "total": lambda config: duration(config.seconds(total)),
    }
    if settings.price is not None:
        lines["price of 1B"] = lambda config: f"{config.price(_BILLION):,.2f}"
        lines["total price"] = lambda config: f"{config.price(total):,.2f}"
    print_table(
        f"Time for {with_unit(total, ' tokens')}",
        [[line, *map(value, choices)] for line, value in lines.items()],
        ["", *names],
    )


def print_disk(settings: PlanSettings) -> None:
    sizes = {size: ParallelConfig(settings, size, 1, False, False).costs for size in settings.size}
    examples = next(iter(sizes.values())).examples_bytes(settings.tokens)
    rows = [
        ("text of that many tokens", with_unit(settings.tokens / TOKENS_A_BYTE, "B")),
        ("examples", with_unit(examples, "B")),
        ("examples while being built", with_unit(2 * examples, "B")),
    ]
    for size, costs in sizes.items():
        kept = with_unit(_CHECKPOINTS * costs.checkpoint_bytes, "B")
        rows.append((f"checkpoint of {size}", f"{with_unit(costs.checkpoint_bytes, 'B')}, {kept} while training"))
    print_table("Disk", rows)
