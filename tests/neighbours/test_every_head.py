"""All heads: double precision, and tuples with return_dict=False."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

import modeling_mybert

CLOSE = 1e-10  # a single operation in float32 differs by more


def test_double_precision_has_no_operation_in_float32(head, pair, inputs_of):
    batch = inputs_of(head)
    batch["attention_mask"].fill_(1)
    ours, theirs = (model.double() for model in pair(head))
    expected = theirs(**batch)
    for attention in ("eager", "sdpa"):
        ours.set_attn_implementation(attention)
        found = ours(**batch)
        for key, value in expected.items():
            assert found[key].dtype == value.dtype == torch.float64
            assert (found[key] - value).abs().max() < CLOSE


def test_return_dict_false_gives_tuples(head, bert_folders, inputs_of):
    model_class, batch = getattr(modeling_mybert, head), inputs_of(head)
    named = model_class.from_pretrained(bert_folders(head)).eval()
    plain = model_class.from_pretrained(bert_folders(head), return_dict=False).eval()
    with torch.no_grad():
        expected, found = named(**batch), plain(**batch)
        assert isinstance(found, tuple)
        assert all(torch.equal(a, b) for a, b in zip(found, expected.to_tuple(), strict=True))
        assert torch.equal(plain(**batch, return_dict=True)[0], expected[0])


def test_modules_called_by_themselves_compute_what_those_of_bert_do(pair):
    ids = torch.randint(1000, 2000, (3, 9))
    states = torch.linspace(-1, 1, 3 * 9 * 32).view(3, 9, 32)
    mask = torch.zeros(3, 1, 1, 9)
    mask[1, ..., 4:] = torch.finfo(mask.dtype).min
    found, expected = (
        [
            model.bert.embeddings(ids),
            model.bert.embeddings(input_ids=ids, token_type_ids=ids % 2, position_ids=torch.arange(9)[None].flip(1)),
            model.bert.embeddings(inputs_embeds=states),
            model.bert.encoder(states)[0],
            model.bert.encoder(states, mask).last_hidden_state,
            model.bert.encoder.layer[1](states),
            model.bert.encoder.layer[1](states, mask),
            model.bert.encoder.layer[0].attention(states, mask)[0],
            model.bert.pooler(states),
            *model.cls(states, states[:, 0]),
            model.cls.predictions(states),
        ]
        for model in pair("MyBertForPreTraining")
    )
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    ours, theirs = (model.cls(states) for model in pair("MyBertForMaskedLM"))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["MyBertForMultipleChoice", "MyBertForSequenceClassification"])
def test_positions_of_all_sequences_may_be_given_once(name, pair, inputs_of):
    batch = inputs_of(name)
    batch["token_type_ids"] = batch["input_ids"] % 2
    for positions in (torch.arange(9).flip(0), torch.arange(9).flip(0)[None]):
        ours, theirs = (model(**batch, position_ids=positions).logits for model in pair(name))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_losses_of_both_tasks_are_no_part_of_the_tuple_that_bert_returns(pair, inputs_of, tmp_path):
    found = []
    rows = [{name: x[row].tolist() for name, x in inputs_of("MyBertForPreTraining").items()} for row in range(4)]
    for model in pair("MyBertForPreTraining"):
        loss, *logits = model(**inputs_of("MyBertForPreTraining"), return_dict=False)
        names = ["labels", "next_sentence_label"]
        arguments = TrainingArguments(str(tmp_path), label_names=names, report_to="none", use_cpu=True)
        found.append([loss, *logits, *map(torch.tensor, Trainer(model, arguments).predict(rows).predictions)])
    assert [x.shape for x in found[0]] == [x.shape for x in found[1]]
