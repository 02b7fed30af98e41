"""Memory, traffic, time and price of the ways to train a size on a number of devices, by arithmetic."""

from dataclasses import dataclass

from modeling_mybert.configuration_mybert import MyBertConfig
from mybert.pretraining.planning.flops_and_memory import ModelCosts
from mybert.pretraining.planning.settings import PlanSettings
from mybert.pretraining.settings import PretrainSettings


@dataclass(frozen=True)
class ParallelConfig:
    """One way to train a size on a number of devices: sharded (FSDP), or with a whole copy on each device (DDP)."""

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
        rate = self.settings.peak * self.settings.mfu * self.devices
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
    def muon_tokens_per_second(self) -> float | None:
        """With Muon, each device of which needs whole matrices."""
        if self.sharded:
            return None
        step = self.costs.muon_flops / (self.settings.peak * self.settings.mfu)
        return self.step_tokens / (self.step_tokens / self.tokens_per_second + step)

    @property
    def mfu(self) -> float:
        """Share of the peak, counting useful operations only."""
        return self.costs.flops_per_token * self.tokens_per_second / (self.settings.peak * self.devices)

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
