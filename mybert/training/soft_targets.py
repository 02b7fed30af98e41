"""Divergence of a student's distribution from a teacher's at a temperature (Hinton et al. 2015)."""

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax


def soft_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Σ over classes of KL(teacher || student) at a temperature, times its square (section 2 of the paper).

    Args:
        student, teacher: (…, classes) logits.

    Returns:
        (…).
    """
    expected = log_softmax(teacher.float() / temperature, -1)
    found = log_softmax(student.float() / temperature, -1)
    return kl_div(found, expected, reduction="none", log_target=True).sum(-1) * temperature**2
