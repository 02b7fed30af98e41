"""The causal model compared with transformers' BERT as a decoder: logits, gradients and generated ids."""

import json
import logging
import warnings

import pytest
import torch
from recomputation import checkpoint_layers
from safetensors.torch import load_file
from torch import nn
from trainer_step import first_step
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    DynamicCache,
    EncoderDecoderCache,
    EncoderDecoderModel,
    Trainer,
    TrainingArguments,
)
from twins import twins

from modeling_mybert import (
    MyBertConfig,
    MyBertEncoderDecoderModel,
    MyBertForMaskedLM,
    MyBertLMHeadModel,
    MyBertModel,
    backbone_mybert,
)
from modeling_mybert.decoder_mybert import CACHE

TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "is_decoder": True,
    "add_cross_attention": True,
}
BACKENDS = ["eager", "sdpa"]


def pair(attention: str = "sdpa", **settings) -> tuple[BertLMHeadModel, MyBertLMHeadModel]:
    """BERT's and ours with the same weights."""
    return twins(MyBertConfig(**{**TINY, **settings}, attn_implementation=attention), "LMHeadModel", std=0.3)


def batch(padding: str = "none", encoder: bool = True) -> dict[str, torch.Tensor]:
    """Three rows of seven ids, one of them shorter by three, and an encoder's output with two lengths."""
    generator = torch.Generator().manual_seed(1)
    inputs = {
        "input_ids": torch.randint(5, 99, (3, 7), generator=generator),
        "attention_mask": torch.ones(3, 7, dtype=torch.long),
    }
    if padding != "none":
        inputs["attention_mask"][1, slice(0, 3) if padding == "left" else slice(4, 7)] = 0
    if encoder:
        inputs["encoder_hidden_states"] = torch.randn(3, 5, 32, generator=generator)
        inputs["encoder_attention_mask"] = torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] * 5])
    return inputs


@pytest.mark.parametrize("encoder", [True, False])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("attention", BACKENDS)
@torch.no_grad()
def test_logits_and_hidden_states_equal_berts(attention, padding, encoder):
    inputs = batch(padding, encoder)
    real = inputs["attention_mask"].bool()
    expected, found = (model(**inputs, output_hidden_states=True) for model in pair(attention))
    assert (expected.logits - found.logits)[real].abs().max() < 1e-5
    assert len(found.hidden_states) == len(expected.hidden_states) == 3
    for a, b in zip(expected.hidden_states, found.hidden_states, strict=True):
        assert (a - b)[real].abs().max() < 1e-5


@pytest.mark.parametrize("attention", BACKENDS)
@torch.no_grad()
def test_attention_probabilities_equal_berts_whichever_backend_is_set(attention):
    inputs = batch("left")
    real = inputs["attention_mask"].bool()
    expected = pair("eager")[0](**inputs, output_attentions=True)
    found = pair(attention)[1](**inputs, output_attentions=True)
    for kind, columns in (("attentions", 7), ("cross_attentions", 5)):
        assert len(found[kind]) == len(expected[kind]) == 2
        for a, b in zip(expected[kind], found[kind], strict=True):
            assert b.shape == (3, 4, 7, columns)
            assert (a - b).transpose(1, 2)[real].abs().max() < 1e-6


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("attention", BACKENDS)
def test_losses_and_gradients_equal_berts(attention, checkpointing):
    theirs, ours = pair(attention)
    inputs = batch("right")
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    labels[0, :3] = -100
    if checkpointing:
        checkpoint_layers(ours)
    losses = []
    for model in (theirs, ours):
        states = inputs["encoder_hidden_states"].clone().requires_grad_()
        loss = model.train()(**{**inputs, "encoder_hidden_states": states}, labels=labels).loss
        loss.backward()
        losses.append((loss.detach(), states.grad))
    assert torch.allclose(losses[0][0], losses[1][0], rtol=1e-6)
    assert torch.allclose(losses[0][1], losses[1][1], atol=1e-6)
    for (name, a), b in zip(theirs.named_parameters(), ours.parameters(), strict=True):
        assert (a.grad - b.grad).norm() < 1e-5 * a.grad.norm() + 1e-6, name


@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("encoder", [True, False])
@torch.no_grad()
def test_going_on_from_a_cache_equals_one_pass(attention, step, encoder):
    ours, inputs = pair(attention)[1], batch("left", encoder)
    ids, mask = inputs.pop("input_ids"), inputs.pop("attention_mask")
    expected = ours(ids, mask, **inputs, use_cache=False)
    assert expected.get(CACHE) is None
    cache, found = None, []
    for start in range(0, 7, step):
        seen = mask[:, : start + step]
        outputs = ours(ids[:, start : start + step], seen, **inputs, past_key_values=cache, use_cache=True)
        cache = outputs[CACHE]
        found.append(outputs.logits)
    assert isinstance(cache, EncoderDecoderCache if encoder else DynamicCache)
    assert cache.get_seq_length() == 7
    assert (torch.cat(found, 1) - expected.logits)[mask.bool()].abs().max() < 1e-5


@torch.no_grad()
def test_keys_and_values_of_the_encoder_are_computed_once():
    ours, inputs = pair()[1], batch()
    projections = []
    ours.bert.encoder.layer[0].crossattention.self.key.register_forward_hook(lambda *_: projections.append(1))
    ours.generate(**inputs, max_new_tokens=4, min_new_tokens=4, **{CACHE: EncoderDecoderCache(*caches(ours))})
    assert len(projections) == 1


def caches(model) -> tuple[DynamicCache, DynamicCache]:
    return DynamicCache(config=model.config), DynamicCache(config=model.config)


GENERATION = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True, "top_k": 20},
    "no cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static"},
}


@pytest.mark.parametrize("how", GENERATION)
def test_generated_ids_on_left_padded_prompts_equal_berts(how):
    found = []
    for model in pair():
        torch.manual_seed(2)
        inputs = batch("left", encoder=False)
        found.append(model.generate(**inputs, **GENERATION[how], max_new_tokens=12, eos_token_id=3, pad_token_id=0))
    assert torch.equal(*found)
    assert found[0].shape[1] > 7


@pytest.mark.parametrize("encoder", [True, False])
def test_generation_amid_training_with_gradient_checkpointing_gives_the_same_ids(encoder):
    ours, inputs = pair()[1], batch("left", encoder)
    expected = ours.eval().generate(**inputs, max_new_tokens=12, min_new_tokens=12)
    checkpoint_layers(ours.train())
    assert torch.equal(ours.generate(**inputs, max_new_tokens=12, min_new_tokens=12), expected)


@torch.no_grad()
def test_what_stands_later_does_not_change_earlier_logits_even_where_the_configuration_says_encoder():
    config = MyBertConfig(**{**TINY, "is_decoder": False, "add_cross_attention": False})
    ours = MyBertLMHeadModel(config).eval()
    ids = batch()["input_ids"]
    changed = ids.clone()
    changed[:, 4:] = 7
    assert torch.allclose(ours(ids).logits[:, :4], ours(changed).logits[:, :4], atol=1e-6)
    assert not torch.allclose(ours(ids).logits[:, 4:], ours(changed).logits[:, 4:], atol=1e-3)
    assert ours.config.is_decoder
    assert not config.is_decoder


@pytest.mark.parametrize("attention", BACKENDS)
def test_dropout_in_training_draws_from_berts_distribution_and_leaves_gradients_finite(attention):
    inputs = {name: x.repeat_interleave(100, 0) for name, x in batch("right").items()}
    real = batch("right")["attention_mask"].bool()
    draws = []
    for model in pair(attention, attention_probs_dropout_prob=0.5):
        logits = model.train()(**inputs).logits
        draws.append(logits.unflatten(0, (3, 100)).transpose(1, 2)[real])  # (17 places, 100 draws, V)
    draws[1].sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    (mean, ours), (deviation, spread) = ([f(x, 1) for x in draws] for f in (torch.mean, torch.std))
    assert deviation.mean() > 0.1
    error = ((deviation.square() + spread.square()) / 100).sqrt()  # of the difference between the two means
    assert ((mean - ours) / error).square().mean() < 1.5  # 1 if both draw from one distribution
    assert (spread / deviation - 1).mean().abs() < 0.1


@pytest.mark.parametrize("attention", BACKENDS)
@torch.no_grad()
def test_double_precision_is_double_throughout(attention):
    inputs = batch("right")
    inputs["encoder_hidden_states"] = inputs["encoder_hidden_states"].double()
    real = inputs["attention_mask"].bool()
    expected, found = (model.double()(**inputs).logits for model in pair(attention))
    assert (expected - found)[real].abs().max() < 1e-10


def test_label_smoothing_by_trainer_predicts_the_next_token_as_it_does_for_bert(tmp_path):
    arguments = TrainingArguments(output_dir=str(tmp_path), label_smoothing_factor=0.1, report_to="none", use_cpu=True)
    inputs = batch("right")
    inputs["labels"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    expected, found = (Trainer(model, arguments).compute_loss(model, dict(inputs)) for model in pair())
    torch.testing.assert_close(found, expected)


def test_reading_a_causal_checkpoint_as_an_encoder_is_said(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    backbone_mybert.logger.warning_once.__func__.cache_clear()
    pair()[1].save_pretrained(tmp_path)
    with caplog.at_level("WARNING", logger="transformers"):
        MyBertLMHeadModel.from_pretrained(tmp_path)
        assert "is_decoder" not in caplog.text
        MyBertModel.from_pretrained(tmp_path)
    assert "AutoModelForCausalLM" in caplog.text


@torch.no_grad()
def test_a_backend_for_ragged_tokens_is_replaced_by_sdpa():
    ours = pair("sdpa")[1]
    expected = ours(**batch("left")).logits
    ours.set_attn_implementation("flex_attention")
    assert ours.bert.config._attn_implementation == "flex_attention"
    assert torch.equal(ours(**batch("left")).logits, expected)


@torch.no_grad()
def test_the_feed_forward_layer_in_chunks_gives_the_same():
    expected = pair()[1](**batch()).logits
    assert torch.allclose(pair(chunk_size_feed_forward=2)[1](**batch()).logits, expected, atol=1e-5)


@torch.no_grad()
def test_logits_of_the_last_columns_alone_and_tuples():
    ours, inputs = pair()[1], batch()
    whole = ours(**inputs).logits
    assert torch.allclose(ours(**inputs, logits_to_keep=2).logits, whole[:, -2:], atol=1e-6)
    assert torch.allclose(ours(**inputs, logits_to_keep=torch.tensor([1, 4])).logits, whole[:, [1, 4]], atol=1e-6)
    loss, logits = ours(**inputs, labels=inputs["input_ids"], return_dict=False)
    assert loss.dim() == 0
    assert torch.equal(logits, whole)


WRONG = {
    "packed": ({"cu_seq_lens_q": torch.tensor([0, 3, 7])}, "pad them"),
    "both inputs": ({"inputs_embeds": torch.zeros(3, 7, 32)}, "exactly one of input_ids and inputs_embeds"),
    "unknown id": ({"input_ids": torch.full((3, 7), 99)}, r"input_ids holds 99.*vocab_size=99"),
    "mask": ({"attention_mask": torch.ones(3, 5)}, r"attention_mask has shape \(3, 5\), expected \(3, 7\)"),
    "long": ({"input_ids": torch.full((3, 65), 7), "attention_mask": None}, r"65 positions.*max_position_embeddings"),
    "encoder": ({"encoder_hidden_states": torch.zeros(2, 5, 32)}, r"shape \(2, 5, 32\), expected \(3, any, 32\)"),
    "encoder mask": ({"encoder_attention_mask": torch.ones(3, 4)}, r"encoder_attention_mask has shape \(3, 4\)"),
    "labels": ({"labels": torch.full((3, 7), 99)}, "labels holds 99"),
    "fewer labels": ({"labels": torch.full((3, 4), 5)}, "12 labels where 21 are expected"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused_by_name_and_number(case):
    wrong, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        pair()[1](**{**batch(), **wrong})


def test_an_encoder_without_cross_attention_is_refused():
    ours = MyBertLMHeadModel(MyBertConfig(**{**TINY, "add_cross_attention": False}))
    with pytest.raises(ValueError, match="add_cross_attention=True"):
        ours(**batch())


def test_checkpoints_interchange_with_berts_both_ways(tmp_path):
    theirs, ours = pair()
    theirs.save_pretrained(tmp_path / "bert")
    ours.save_pretrained(tmp_path / "mybert")
    names = [set(load_file(tmp_path / name / "model.safetensors")) for name in ("bert", "mybert")]
    assert names[0] == names[1]
    assert "bert.encoder.layer.1.crossattention.self.query.weight" in names[1]
    inputs = batch()
    with torch.no_grad():
        expected = theirs(**inputs).logits
        config = BertConfig.from_dict(json.loads((tmp_path / "mybert/config.json").read_text()))
        for cls, folder, kwargs in (
            (MyBertLMHeadModel, "bert", {}),
            (BertLMHeadModel, "mybert", {"config": config}),
            (AutoModelForCausalLM, "mybert", {}),
        ):
            model, report = cls.from_pretrained(tmp_path / folder, output_loading_info=True, **kwargs)
            assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
            assert torch.allclose(model.eval()(**inputs).logits, expected, atol=1e-5)


@pytest.fixture
def encoder_folder(tmp_path):
    """A pretrained masked language model."""
    torch.manual_seed(0)
    sizes = {name: value for name, value in TINY.items() if name not in ("is_decoder", "add_cross_attention")}
    MyBertForMaskedLM(MyBertConfig(**sizes, initializer_range=0.3)).save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


def sequence_to_sequence(cls, folder):
    """A model of two pretrained halves; the new cross-attention is the same in every call."""
    torch.manual_seed(0)
    model = cls.from_encoder_decoder_pretrained(str(folder), str(folder))
    model.config.decoder_start_token_id, model.config.pad_token_id = 2, 0
    model.generation_config.update(decoder_start_token_id=2, eos_token_id=3, pad_token_id=0)
    return model.eval()


TASK = {
    "input_ids": torch.tensor([[2, 40, 41, 42, 3], [2, 50, 51, 3, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
}
LABELS = torch.tensor([[42, 41, 40, 3], [51, 50, 3, -100]])


def test_transformers_encoder_decoder_with_mybert_on_both_sides_equals_bert_on_both(encoder_folder):
    ours = sequence_to_sequence(EncoderDecoderModel, encoder_folder)
    assert isinstance(ours.encoder, MyBertModel)
    assert isinstance(ours.decoder, MyBertLMHeadModel)
    config = json.loads((encoder_folder / "config.json").read_text())
    (encoder_folder / "config.json").write_text(json.dumps({**config, "model_type": "bert", "auto_map": {}}))
    theirs = sequence_to_sequence(EncoderDecoderModel, encoder_folder)
    assert isinstance(theirs.decoder, BertLMHeadModel)
    theirs.load_state_dict(ours.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about its loss in versions of long ago
        losses = [model(**TASK, labels=LABELS).loss for model in (theirs, ours)]
    assert torch.allclose(*losses, rtol=1e-5)
    for how in ({"num_beams": 4}, {"num_beams": 3, "num_return_sequences": 3}, {}):
        found = [model.generate(**TASK, **how, max_new_tokens=12) for model in (theirs, ours)]
        assert torch.equal(*found)


def test_our_own_class_gives_the_stock_classes_loss_and_reads_its_folders_and_the_other_way_round(
    encoder_folder, tmp_path
):
    stock, ours = (
        sequence_to_sequence(cls, encoder_folder) for cls in (EncoderDecoderModel, MyBertEncoderDecoderModel)
    )
    ours.load_state_dict(stock.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        expected = stock(**TASK, labels=LABELS).loss
    assert torch.allclose(ours(**TASK, labels=LABELS, return_dict=False)[0], expected, rtol=1e-6)
    assert torch.allclose(ours(**TASK, labels=LABELS, num_items_in_batch=14)["loss"] * 2, expected, rtol=1e-6)
    ids = stock.generate(**TASK, num_beams=3, max_new_tokens=12)
    stock.save_pretrained(tmp_path / "stock")
    ours.save_pretrained(tmp_path / "ours")
    for cls, folder in ((MyBertEncoderDecoderModel, "stock"), (EncoderDecoderModel, "ours")):
        loaded = cls.from_pretrained(tmp_path / folder).eval()
        assert torch.equal(loaded.generate(**TASK, num_beams=3, max_new_tokens=12), ids)


def labelled_rows() -> list[dict]:
    """Labels of very different numbers, so that a mean of means is not the mean of all."""
    labels = [nn.functional.pad(torch.arange(40, 40 + 2 * n), (0, 7 - 2 * n), value=-100) for n in range(4)]
    for n, row in enumerate(labels):
        row[2 * n] = 3
    return [{"input_ids": torch.tensor([2, 40 + n, 50 + n, 3]), "labels": row} for n, row in enumerate(labels)]


@pytest.mark.parametrize("kind", ["decoder", "encoder and decoder"])
def test_a_step_accumulated_by_trainer_equals_one_big_batch(kind, encoder_folder, tmp_path):
    found = []
    for accumulation in (1, 4):
        if kind == "decoder":
            model, rows = pair(add_cross_attention=False)[1], labelled_rows()
            rows = [{"input_ids": row["labels"].clamp(min=0), "labels": row["labels"]} for row in rows]
        else:
            model, rows = sequence_to_sequence(MyBertEncoderDecoderModel, encoder_folder), labelled_rows()
        found.append(first_step(model, rows, tmp_path / "run", accumulation))
    assert found[1] == pytest.approx(found[0], rel=1e-5)


GENERATE = """
import json, torch
from transformers import AutoModelForSeq2SeqLM
task = {name: torch.tensor(ids) for name, ids in json.loads(sys.argv[2]).items()}
for folder in (sys.argv[1], sys.argv[1] + "-again"):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
    print(json.dumps(model.generate(**task, num_beams=3, max_new_tokens=12).tolist()))
    model.save_pretrained(sys.argv[1] + "-again")
"""


def test_a_sequence_to_sequence_folder_loads_in_a_process_without_this_project(encoder_folder, tmp_path, run_foreign):
    model = sequence_to_sequence(MyBertEncoderDecoderModel, encoder_folder)
    model.save_pretrained(tmp_path / "saved")
    task = json.dumps({name: ids.tolist() for name, ids in TASK.items()})
    printed = run_foreign(GENERATE, tmp_path / "saved", task)
    expected = model.generate(**TASK, num_beams=3, max_new_tokens=12).tolist()
    assert [json.loads(line) for line in printed] == [expected, expected]


def test_the_exported_model_returns_the_logits_and_the_cache_for_any_batch():
    _, model = pair(add_cross_attention=False)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=64)}
    inputs = batch("right", encoder=False)
    program = torch.export.export(model, (), inputs, dynamic_shapes=dict.fromkeys(inputs, axes), strict=False).module()
    other = {name: torch.cat([x, x], dim=1)[:2] for name, x in inputs.items()}
    with torch.no_grad():
        for case in (inputs, other):
            found, expected = program(**case), model(**case)
            assert (found.logits - expected.logits).abs().max() < 1e-5
            for ours, theirs in zip(found[CACHE].layers, expected[CACHE].layers, strict=True):
                assert (ours.keys - theirs.keys).abs().max() < 1e-5
                assert (ours.values - theirs.values).abs().max() < 1e-5
