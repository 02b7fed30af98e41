"""`mybert plan`: what a run would take on devices that are not here, before anything is bought or built."""

from collections.abc import Iterable
from dataclasses import dataclass

from modeling_mybert.configuration_mybert import NAMED_SIZES, MyBertConfig
from mybert.common.quantities import Quantity, duration, with_unit
from mybert.common.settings import check, setting
from mybert.common.tables import print_table
from mybert.corpus.disk_budget import TOKENS_A_BYTE
from mybert.pretraining.planning.costs import Costs
from mybert.pretraining.settings import PretrainingArguments, PretrainSettings

_BILLION = 10**9
_LEAST, _MOST = 0.001, 10**9  # beyond are slips of the keyboard, and products that no float holds
_CHECKPOINTS = PretrainingArguments.save_total_limit + 1  # one more while it is written


@dataclass
class ForecastSettings:
    """Model, text and devices; several sizes or device counts give one line for each combination.

    Raises:
        UserError: a value is out of range.
    """

    tokens: Quantity = setting(help="Real tokens of the examples, which one pass reads, as 3.3B.")
    flops: Quantity = setting(help="Floating point operations a second that one device could do, as 400T.")
    size: list[str] = setting(default_factory=lambda: ["base"], help=f"Sizes: {', '.join(NAMED_SIZES)}.")
    devices: list[int] = setting(default_factory=lambda: [1], help="Numbers of devices, each at least 1.")
    epochs: float = setting(1.0, "Passes over the examples, above 0.")
    length: int = setting(128, "Tokens of a sequence, from 1 to 512.")
    per_device_train_batch_size: int = setting(32, "Sequences per device and forward pass, at least 1.")
    gradient_accumulation_steps: int = setting(1, "Forward passes per optimizer step, at least 1.")
    vocab_size: int = setting(30_522, "Pieces of the vocabulary, at least 1.")
    bf16: bool = setting(True, "Compute in 16 bits; weights stay in 32.")
    mfu: float = setting(0.4, "Share of --flops that the run reaches, at most 1; see docs/guides/scale-out.md.")
    bandwidth: Quantity = setting(Quantity("50G"), "Bytes a second that a device can send while it computes.")
    memory: Quantity | None = setting(None, "Bytes of a device's memory, as 80G; what does not fit is marked.")
    price: float | None = setting(None, "Price of a device and hour, in any currency, 0 or more.")

    def __post_init__(self):
        check(self, "size", set(self.size) <= NAMED_SIZES.keys(), " or ".join(NAMED_SIZES))
        check(self, "devices", all(1 <= count <= _MOST for count in self.devices), f"1 to {_MOST:,}")
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "vocab_size"):
            check(self, name, 1 <= getattr(self, name) <= _MOST, f"1 to {_MOST:,}")
        longest = MyBertConfig().max_position_embeddings
        check(self, "length", 1 <= self.length <= longest, f"1 to {longest}")
        check(self, "mfu", _LEAST <= self.mfu <= 1, f"{_LEAST} to 1")
        check(self, "epochs", _LEAST <= self.epochs <= _MOST, f"{_LEAST} to {_MOST:,}")
        check(self, "price", self.price is None or 0 <= self.price <= _MOST, f"0 to {_MOST:,}")


@dataclass(frozen=True)
class Way:
    """One way to train one size on so many devices.

    Attributes:
        settings: the devices, and what they read.
        size, devices: one of the settings' each.
        sharded: by FSDP; else each device holds a whole copy, and several are DDP.
        checkpointing: layers are computed again in the backward pass.
    """

    settings: ForecastSettings
    size: str
    devices: int
    sharded: bool
    checkpointing: bool

    @property
    def name(self) -> str:
        kind = "FSDP" if self.sharded else "DDP" if self.devices > 1 else "alone"
        return f"{kind}, checkpointing" if self.checkpointing else kind

    @property
    def costs(self) -> Costs:
        s = self.settings
        config = MyBertConfig.from_size(self.size, vocab_size=s.vocab_size)
        return Costs(config, s.length, s.length, PretrainSettings.mlm_probability, has_pairs=True)

    @property
    def forward_tokens(self) -> int:
        return self.settings.per_device_train_batch_size * self.settings.length

    @property
    def step_tokens(self) -> int:
        """Of all devices."""
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
    def computing(self) -> float:
        """Seconds a step."""
        rate = self.settings.flops * self.settings.mfu * self.devices
        return self.step_tokens * self.costs.executed_per_token(self.checkpointing) / rate

    @property
    def sending(self) -> float:
        """Seconds a step."""
        return self.traffic / self.settings.bandwidth

    @property
    def tokens_per_second(self) -> float:
        """Sending goes on beside computing; the longer of the two decides."""
        return self.step_tokens / max(self.computing, self.sending)

    @property
    def mfu(self) -> float:
        """Useful operations alone."""
        return self.costs.flops_per_token * self.tokens_per_second / (self.settings.flops * self.devices)

    def seconds(self, tokens: float) -> float:
        return tokens / self.tokens_per_second

    def price(self, tokens: float) -> float | None:
        """None where no price was given."""
        price = self.settings.price
        return None if price is None else price * self.devices * self.seconds(tokens) / 3600


def ways(settings: ForecastSettings, size: str, devices: int) -> list[Way]:
    """From the fastest to the one that needs the least memory."""
    return [
        Way(settings, size, devices, sharded, checkpointing)
        for sharded in ((False, True) if devices > 1 else (False,))
        for checkpointing in (False, True)
    ]


def main(settings: ForecastSettings) -> None:
    combinations = [(size, devices) for size in settings.size for devices in settings.devices]
    if len(combinations) > 1:
        print_overview(settings, combinations)
    else:
        print_details(ways(settings, *combinations[0]))
    print_disk(settings)


def print_overview(settings: ForecastSettings, combinations: Iterable[tuple[str, int]]) -> None:
    """A line for each combination, trained the fastest way that fits: for a billion tokens, and for all."""
    total, rows = settings.tokens * settings.epochs, []
    for size, devices in combinations:
        choices = ways(settings, size, devices)
        way = next((choice for choice in choices if choice.fits), choices[-1])
        rows.append(
            (
                *(size, devices, way.name if way.fits else "does not fit"),
                with_unit(sum(way.memory.values()), "B"),
                with_unit(way.traffic, "B"),
                with_unit(way.tokens_per_second, ""),
                f"{way.seconds(_BILLION) / 3600:.3g}",
                f"{way.seconds(total) / 3600:.3g}",
                *([] if settings.price is None else [f"{way.price(_BILLION):,.2f}", f"{way.price(total):,.0f}"]),
            )
        )
    columns = ["size", "devices", "how", "memory", "sent", "tokens/s", "1B, h", "all, h"]
    columns += [] if settings.price is None else ["1B, price", "all, price"]
    print_table(f"{with_unit(total, ' tokens')} of training", rows, columns)


def print_details(choices: list[Way]) -> None:
    """One combination in full, a column for each way."""
    first = choices[0]
    settings, costs = first.settings, first.costs
    total = settings.tokens * settings.epochs
    flops = costs.flops_by_part()
    rows = [(part, with_unit(value, "FLOP"), f"{value / costs.flops_per_token:.1%}") for part, value in flops.items()]
    rows.append(("useful, in all", with_unit(costs.flops_per_token, "FLOP"), "100.0%"))
    rows.append(("checkpointing adds", with_unit(costs.recomputed_per_token, "FLOP"), None))
    print_table(f"{first.size}, {costs.parameters:,} parameters", rows, ("operations", "a token", "share"))
    names = [way.name for way in choices]
    parts = [way.memory for way in choices]
    rows = [[part, *(with_unit(memory[part], "B") for memory in parts)] for part in parts[0]]
    rows.append(["in all", *(with_unit(sum(memory.values()), "B") for memory in parts)])
    if settings.memory is not None:
        rows.append([f"fits {with_unit(settings.memory, 'B')}", *("yes" if way.fits else "no" for way in choices)])
    print_table(
        "Memory of the device" if first.devices == 1 else f"Memory of each of {first.devices:,} devices",
        rows,
        ["component", *names],
    )
    lines = {
        "tokens a step": lambda way: f"{way.step_tokens:,}",
        "steps": lambda way: f"{max(total / way.step_tokens, 1):,.0f}",
        "sent in a step": lambda way: with_unit(way.traffic, "B"),
        "computing, s a step": lambda way: f"{way.computing:.3g}",
        "sending meanwhile, s": lambda way: f"{way.sending:.3g}",
        "tokens a second": lambda way: f"{way.tokens_per_second:,.0f}",
        "MFU": lambda way: f"{way.mfu:.1%}",
        "1B tokens": lambda way: duration(way.seconds(_BILLION)),
        "in all": lambda way: duration(way.seconds(total)),
    }
    if settings.price is not None:
        lines["price of 1B"] = lambda way: f"{way.price(_BILLION):,.2f}"
        lines["price in all"] = lambda way: f"{way.price(total):,.2f}"
    print_table(
        f"Time for {with_unit(total, ' tokens')}",
        [[line, *map(value, choices)] for line, value in lines.items()],
        ["", *names],
    )


def print_disk(settings: ForecastSettings) -> None:
    sizes = {size: Way(settings, size, 1, False, False).costs for size in settings.size}
    examples = next(iter(sizes.values())).examples_bytes(settings.tokens)
    rows = [
        ("text of as many tokens", with_unit(settings.tokens / TOKENS_A_BYTE, "B")),
        ("examples", with_unit(examples, "B")),
        ("examples while they are built", with_unit(2 * examples, "B")),
    ]
    for size, costs in sizes.items():
        kept = with_unit(_CHECKPOINTS * costs.checkpoint_bytes, "B")
        rows.append((f"a checkpoint of {size}", f"{with_unit(costs.checkpoint_bytes, 'B')}, at most {kept} at once"))
    print_table("Disk", rows)
