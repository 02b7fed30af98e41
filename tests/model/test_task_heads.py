"""Task heads compared with BERT's, and packed batches with padded ones."""

import pytest
import torch
from twins import twins

from modeling_mybert import (
    MyBertForMultipleChoice,
    MyBertForPreTraining,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
)

LENGTHS = (9, 4, 7, 2)


def padded_batch(left: bool = False) -> dict[str, torch.Tensor]:
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    mask = mask.flip(1) if left else mask
    ids = torch.randint(5, 99, mask.shape, generator=torch.Generator().manual_seed(0)) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask * (torch.arange(max(LENGTHS)) > 2)}


def packed_batch(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The real tokens of a padded batch, end to end."""
    real = batch["attention_mask"].bool()
    ends = torch.tensor((0, *LENGTHS)).cumsum(0).to(torch.int32)
    packed = {name: batch[name][real][None] for name in ("input_ids", "token_type_ids")}
    return {**packed, "cu_seq_lens_q": ends, "max_length_q": max(LENGTHS)}


def same_loss_and_gradients(theirs, ours, inputs, labels):
    expected, found = theirs(**inputs, **labels), ours(**inputs, **labels)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-5, atol=1e-6)
    expected.loss.backward()
    found.loss.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-6)


SINGLE, SEVERAL = torch.tensor([0, 2, 1, 1]), torch.arange(12).reshape(4, 3)
PAIRS = torch.tensor([0, 1, 1, 0])
OF_SEQUENCES = [  # number of labels, problem type, and labels
    (3, "single_label_classification", SINGLE),
    (3, "multi_label_classification", (SEVERAL % 2).float()),
    (3, "regression", torch.linspace(-1, 2, 12).reshape(4, 3)),
    (3, None, SINGLE),
    (1, None, torch.linspace(0, 5, 4)),
    (1, None, torch.linspace(0, 5, 4)[:, None]),
]
OF_TOKENS = ("TokenClassification", "MaskedLM")  # others pool: on left-padded rows transformers pools column 0
CASES = [  # head, settings, and labels; of tokens the number of classes
    *(("SequenceClassification", {"num_labels": n, "problem_type": p}, {"labels": x}) for n, p, x in OF_SEQUENCES),
    ("TokenClassification", {"num_labels": 5}, {"labels": 5}),
    ("MultipleChoice", {}, {"labels": torch.tensor([1, 0])}),
    ("MaskedLM", {}, {"labels": 99}),
    ("NextSentencePrediction", {}, {"labels": PAIRS}),
    ("PreTraining", {}, {"labels": 99, "next_sentence_label": PAIRS}),
]


PADDED = [(*x, side) for x in CASES for side in ("none", "right", "left") if side != "left" or x[0] in OF_TOKENS]


@pytest.mark.parametrize(("head", "settings", "labels", "padding"), PADDED)
def test_logits_losses_and_gradients_are_those_of_bert(tiny_config, head, settings, labels, padding):
    theirs, ours = twins(tiny_config, f"For{head}", **settings)
    inputs = padded_batch(padding == "left")
    ids, real = inputs["input_ids"], inputs["attention_mask"].bool()
    if padding == "none":
        inputs, real = {"input_ids": ids}, torch.ones_like(real)
    labels = {k: torch.where(real & (ids % 3 < 2), ids % x, -100) if type(x) is int else x for k, x in labels.items()}
    if head == "MultipleChoice":
        inputs = {name: x.reshape(2, 2, -1) for name, x in inputs.items()}
    found, expected = (model(**inputs) for model in (ours, theirs))
    for one, other in zip(found.to_tuple(), expected.to_tuple(), strict=True):
        at = real if one.shape[:2] == real.shape else slice(None)
        torch.testing.assert_close(one[at], other[at], rtol=1e-5, atol=1e-6)
    same_loss_and_gradients(theirs, ours, inputs, labels)
    assert ours.config.problem_type == theirs.config.problem_type


def test_question_answering_equals_berts(tiny_config):
    theirs, ours = twins(tiny_config, "ForQuestionAnswering")
    inputs = padded_batch()
    real = inputs["attention_mask"].bool()
    for name in ("start_logits", "end_logits"):
        torch.testing.assert_close(ours(**inputs)[name][real], theirs(**inputs)[name][real], rtol=1e-5, atol=1e-6)
        assert (ours(**inputs)[name][~real] < -1e30).all()
    full = {"input_ids": inputs["input_ids"].clamp(min=5)}
    answers = {"start_positions": torch.tensor([0, 2, 1, 30]), "end_positions": torch.tensor([[3], [2], [8], [30]])}
    same_loss_and_gradients(theirs, ours, full, answers)


def test_the_loss_of_an_answer_counts_real_tokens_only(tiny_config):
    _, ours = twins(tiny_config, "ForQuestionAnswering")
    answers = {"start_positions": torch.tensor([0, 3, 1, 5]), "end_positions": torch.tensor([8, 3, 2, 1])}
    one_by_one = []
    for row, length in enumerate(LENGTHS):
        alone = {name: x[row : row + 1, :length] for name, x in padded_batch().items() if name != "attention_mask"}
        outputs = ours(**alone)
        for scores, position in zip(outputs[:2], (p[row] for p in answers.values()), strict=True):
            if position < length:
                one_by_one.append(-scores.log_softmax(-1)[0, position])
    starts, ends = one_by_one[0:5:2], [one_by_one[i] for i in (1, 3, 5, 6)]
    expected = (torch.stack(starts).mean() + torch.stack(ends).mean()) / 2
    torch.testing.assert_close(ours(**padded_batch(), **answers).loss, expected)


HEADS = {
    MyBertForPreTraining: {"next_sentence_label": PAIRS},
    MyBertForSequenceClassification: {"labels": SINGLE},
    MyBertForTokenClassification: {},
    MyBertForQuestionAnswering: {
        "start_positions": torch.tensor([0, 3, 1, 5]),
        "end_positions": torch.tensor([8, 3, 2, 1]),
    },
    MyBertForMultipleChoice: {"labels": torch.tensor([1, 0])},
}


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("head", HEADS)
def test_packed_batches_give_the_numbers_of_padded_ones(tiny_config, head, backend):
    tiny_config.num_labels = 3
    model = head(tiny_config).eval()
    model.set_attn_implementation(backend)
    batch, labels = padded_batch(), dict(HEADS[head])
    packed, packed_labels = packed_batch(batch), dict(labels)
    real = batch["attention_mask"].bool()
    if head in (MyBertForTokenClassification, MyBertForPreTraining):
        labels["labels"] = torch.where(real, batch["input_ids"] % 3, -100)
        packed_labels["labels"] = labels["labels"][real][None]
    if head is MyBertForMultipleChoice:
        batch = {name: x.reshape(2, 2, -1) for name, x in batch.items()}
    padded, packed = model(**batch, **labels), model(**packed, **packed_labels)
    weights = list(model.parameters())
    gradients = [torch.autograd.grad(outputs.loss, weights, retain_graph=True) for outputs in (packed, padded)]
    torch.testing.assert_close((packed.loss, *gradients[0]), (padded.loss, *gradients[1]), atol=1e-6, rtol=1e-5)
    for name in padded:
        if name.endswith("logits"):
            scores = padded[name]
            expected = scores[real][None] if scores.shape[:2] == real.shape else scores
            torch.testing.assert_close(packed[name], expected)


def test_classifier_dropout_is_the_heads_own(tiny_config):
    tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0
    tiny_config.classifier_dropout = 0.5
    for head in (MyBertForSequenceClassification, MyBertForTokenClassification):
        model = head(tiny_config).train()
        assert model.dropout.p == 0.5
        assert not torch.equal(model(**padded_batch()).logits, model(**padded_batch()).logits)
    tiny_config.classifier_dropout = None
    assert MyBertForSequenceClassification(tiny_config).dropout.p == 0.0


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForMaskedLM"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_gradients_of_each_sample_by_torch_func_equal_berts(tiny_config, attention, head):
    labels, ids = torch.tensor([0, 2, 1, 1]), torch.arange(5, 41).view(4, 9)
    if head == "ForMaskedLM":  # the samples have one to four labels
        labels = ids.where(torch.arange(9) < torch.arange(1, 5)[:, None], -100)
    found, no_dropout = [], {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for model in twins(tiny_config, head, num_labels=3, **no_dropout):
        model.train().set_attn_implementation(attention)

        def loss(weights, label, row, model=model):
            return torch.func.functional_call(model, weights, (row[None],), {"labels": label[None]}).loss

        weights = {name: p.detach() for name, p in model.named_parameters()}
        found.append(torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, labels, ids))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)
