"""Muon for the matrices of the encoder and AdamW for everything else, as one optimizer."""

from collections.abc import Collection

import torch
from torch import nn
from transformers import TrainingArguments


class MuonAdamW(torch.optim.Optimizer):
    """`torch.optim.Muon` and `torch.optim.AdamW` with one list of parameter groups and one state.

    Muon replaces the momentum of a weight matrix by the nearest orthogonal matrix (Jordan et al. 2024). Its updates
    are scaled to the root mean square of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training", section 2.2),
    so that both use the same learning rate.

    Args:
        parts: optimizers of different parameters.
    """

    def __init__(self, *parts: torch.optim.Optimizer):
        groups = [group for part in parts for group in part.param_groups]
        super().__init__(groups, {"lr": parts[0].defaults["lr"]})  # which some schedules of transformers read
        self.parts = parts
        self._share()

    @classmethod
    def of(cls, model: nn.Module, decayed: Collection[str], arguments: TrainingArguments) -> "MuonAdamW":
        """Muon trains the matrices of the layers of a MyBERT; `decayed` names the parameters with weight decay."""
        matrices, tables, rest = [], [], []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                is_matrix = parameter.ndim == 2 and ".encoder." in name
                (matrices if is_matrix else tables if name in decayed else rest).append(parameter)
        muon = torch.optim.Muon(
            matrices, arguments.learning_rate, arguments.weight_decay, adjust_lr_fn="match_rms_adamw"
        )
        adamw = torch.optim.AdamW(
            [{"params": tables}, {"params": rest, "weight_decay": 0.0}],
            arguments.learning_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            eps=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
            fused=True,
        )
        return cls(muon, adamw)

    def _share(self) -> None:
        """Lets the parts use this optimizer's groups, whose rates a scheduler changes, and its state."""
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.state = self.state

    def load_state_dict(self, state_dict: dict) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for part in self.parts:
            part.step()
