"""Losses between teacher and student against brute force."""

import copy
import math

import pytest
import torch

from modeling_mybert import MyBertConfig, MyBertForMaskedLM, MyBertForPreTraining
from mybert.common.quantities import evenly
from mybert.distillation.settings import weights
from mybert.distillation.teacher import Comparison, relation_loss
from mybert.training.objective import soft_loss

LOSSES = {"relations": 1.0, "cosine": 1.0, "soft": 1.0, "mse": 1.0}


def test_half_the_layers_of_a_12_layer_teacher_are_those_of_distilbert():
    assert evenly(12, 6) == [0, 2, 4, 7, 9, 11]
    assert evenly(6, 3) == [0, 2, 5]
    assert evenly(4, 4) == [0, 1, 2, 3]
    assert evenly(4, 1) == [0]


def test_the_soft_loss_is_the_divergence_at_a_temperature_times_its_square():
    student, teacher = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    expected = []
    for own, other in zip(student.tolist(), teacher.tolist(), strict=True):
        p, q = ([math.exp(x / 3) for x in logits] for logits in (other, own))
        p, q = ([x / sum(values) for x in values] for values in (p, q))
        expected.append(9 * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    torch.testing.assert_close(soft_loss(student, teacher, 3.0), torch.tensor(expected))


def test_the_relation_loss_is_the_mean_divergence_of_each_sequence_alone():
    generator, lengths, heads = torch.Generator().manual_seed(0), [3, 5, 1], 2
    student = [torch.randn(9, 8, generator=generator) for _ in range(3)]
    teacher = [torch.randn(9, 12, generator=generator) for _ in range(3)]  # another width
    expected = 0.0
    for own, other in zip(student, teacher, strict=True):
        divergences = []
        for a, b in zip(own.split(lengths), other.split(lengths), strict=True):
            for head in range(heads):
                x, y = a.chunk(heads, -1)[head], b.chunk(heads, -1)[head]
                q = (x @ x.T / math.sqrt(4)).softmax(-1)
                p = (y @ y.T / math.sqrt(6)).softmax(-1)
                divergences += (p * (p / q).log()).sum(-1).tolist()
        expected += sum(divergences) / len(divergences)
    found = relation_loss(student, teacher, torch.tensor(lengths), heads)
    assert found.item() == pytest.approx(expected, rel=1e-5)


@pytest.fixture
def pair():
    """A teacher and a student with the same weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    config = MyBertConfig(vocab_size=50, **sizes, initializer_range=0.3)
    student = MyBertForPreTraining(config).eval()
    teacher = MyBertForMaskedLM(copy.deepcopy(config)).eval()
    teacher.load_state_dict(student.state_dict(), strict=False)
    return teacher, student


SEQUENCES = [([2, 9, 4, 11, 3], {2: 7}), ([2, 4, 8, 15, 16, 3], {1: 5, 4: 6})]  # token ids, and labels by place


def packed(*sequences: tuple[list[int], dict[int, int]]) -> dict:
    """The sequences in one batch."""
    lengths = [len(ids) for ids, _ in sequences]
    labels = torch.tensor([[of.get(place, -100) for ids, of in sequences for place in range(len(ids))]])
    return {
        "input_ids": torch.tensor([[number for ids, _ in sequences for number in ids]]),
        "position_ids": torch.tensor([[place for length in lengths for place in range(length)]]),
        "cu_seq_lens_q": torch.tensor([0, *lengths]).cumsum(0).int(),
        "max_length_q": max(lengths),
        "labels": labels,
        "masked_lm_positions": (labels.flatten() != -100).nonzero().squeeze(1),
    }


def losses(comparison: Comparison, student: MyBertForPreTraining, batch: dict) -> dict[str, torch.Tensor]:
    states = comparison.student_states(student)
    output = student(**batch, sparse_logits=True, output_hidden_states=states)
    return comparison.losses(student, batch, output.prediction_logits, output.hidden_states)[0]


def test_a_student_equal_to_its_teacher_has_no_loss(pair):
    teacher, student = pair
    found = losses(Comparison(teacher, LOSSES, 2.0, 2), student, packed(*SEQUENCES))
    assert list(found) == list(LOSSES), "as they are named in logs"
    assert all(abs(loss.item()) < 1e-5 for loss in found.values())


def test_a_batch_has_the_mean_losses_of_its_sequences_and_gradients_reach_every_layer(pair):
    teacher, student = pair
    with torch.no_grad():
        for weight in student.bert.encoder.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())) * 0.1)
    comparison = Comparison(teacher, LOSSES, 2.0, 2)
    whole, *apart = (losses(comparison, student, packed(*some)) for some in (SEQUENCES, *([one] for one in SEQUENCES)))
    for name in LOSSES:
        counts = [len(labels) if name == "soft" else len(ids) for ids, labels in SEQUENCES]
        mean = sum(count * one[name] for count, one in zip(counts, apart, strict=True)) / sum(counts)
        assert whole[name].item() > 1e-4
        torch.testing.assert_close(whole[name], mean, rtol=1e-4, atol=1e-6)
        student.zero_grad()
        whole[name].backward(retain_graph=True)
        layers = student.bert.encoder.layer
        reached = [layer.attention.self.query.weight.grad is not None for layer in layers]
        assert all(reached), name


def test_hidden_states_of_a_shallower_student_are_compared_with_evenly_spaced_layers(pair):
    teacher, student = pair
    student.bert.encoder.layer = student.bert.encoder.layer[:1]
    student.config.num_hidden_layers = 1
    batch = packed(*SEQUENCES)
    found = losses(Comparison(teacher, {"mse": 1.0}, 2.0, 2), student, batch)["mse"]
    inputs = {name: value for name, value in batch.items() if name not in ("labels", "masked_lm_positions")}
    own = student.bert(**inputs).last_hidden_state
    other = teacher.bert(**inputs).last_hidden_state  # the only layer of the student is compared with the last
    torch.testing.assert_close(found, (own - other).pow(2).mean())


def test_losses_may_be_one_text():
    assert weights(["soft=5 hard=2"]) == weights(["soft=5", "hard=2"]) == {"soft": 5, "hard": 2}
