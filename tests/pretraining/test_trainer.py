import math
import warnings

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from trained_runs import have_same_weights
from transformers import BertConfig, BertForPreTraining

from mybert.pretraining.data import batching
from mybert.pretraining.evaluation import constant_baselines, metrics_of

TIMES = dict.fromkeys(("eval_runtime", "eval_samples_per_second", "eval_steps_per_second"))


def test_accumulating_gradients_changes_neither_loss_nor_gradients(make_trainer):
    results = []
    for accumulation in (1, 4, 8):
        trainer = make_trainer(
            dropout=0.0,
            per_device_train_batch_size=32 // accumulation,
            gradient_accumulation_steps=accumulation,
            max_steps=1,
            logging_steps=1,
            max_grad_norm=0,
        )
        gradients = {}
        for name, parameter in trainer.model.named_parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p, name=name, into=gradients: into.__setitem__(name, p.grad.detach().clone())
            )
        trainer.train()
        results.append((trainer.state.log_history[0], gradients))
    (reference, reference_gradients), *others = results
    assert reference["loss"] == pytest.approx(reference["mlm_loss"] + reference["nsp_loss"], abs=1e-6)
    for log, gradients in others:
        for name in ("loss", "mlm_loss", "nsp_loss", "tokens"):
            assert log[name] == pytest.approx(reference[name], rel=1e-6), name  # 5.8 has no finer neighbours than 5e-7
        torch.testing.assert_close(gradients, reference_gradients, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("at", "workers", "muon"), [(4, 0, False), (7, 2, False), (9, 2, False), (7, 0, True)])
def test_resuming_gives_the_weights_of_an_uninterrupted_run_bit_for_bit(make_trainer, at, workers, muon):
    """96 examples, 32 a step: an epoch has 3 steps, so that steps 4 and 7 lie within one and step 9 between two.

    A log after the checkpoint covers the steps before it too; otherwise the curve would have a step there.
    """
    arguments = {
        "max_steps": 11,
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 2,
        "dataloader_num_workers": workers,
        "learning_rate": 1e-3,
        "logging_steps": 5,
        "objective": {"muon": muon},
    }
    whole = make_trainer(output="whole", save_strategy="steps", save_steps=at, save_total_limit=None, **arguments)
    whole.train()
    resumed = make_trainer(output="resumed", **arguments)
    torch.manual_seed(12345)  # the result must not depend on the state of the generators
    resumed.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-{at}")
    assert have_same_weights(resumed.model, whole.model)
    assert resumed.state.num_input_tokens_seen == whole.state.num_input_tokens_seen
    names = ("step", "tokens", "epoch", "loss", "mlm_loss")
    logs = [[[log[n] for n in names] for log in run.state.log_history if "loss" in log] for run in (whole, resumed)]
    assert logs[0] == logs[1] and [log[0] for log in logs[0]] == [5, 10]


def test_the_limit_of_checkpoints_counts_and_removes_only_checkpoints(make_trainer, tmp_path):
    for name in ("checkpoint-best", "checkpoint-1-copy"):
        (tmp_path / "out" / name).mkdir(parents=True)
    trainer = make_trainer(output="out", max_steps=4, save_strategy="steps", save_steps=1, save_total_limit=2)
    trainer.train()
    names = {path.name for path in (tmp_path / "out").glob("checkpoint-*")}
    assert names == {"checkpoint-3", "checkpoint-4", "checkpoint-best", "checkpoint-1-copy"}


@pytest.mark.parametrize("more_places", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"dataloader_drop_last": True, "eval_do_concat_batches": False}])
def test_evaluation_agrees_with_full_logits_of_transformers_bert(make_trainer, monkeypatch, arguments, more_places):
    if more_places:  # also with few labels
        monkeypatch.setattr(batching, "_WORTH_MORE_PLACES", 0)
    trainer = make_trainer(per_device_eval_batch_size=8, **arguments)
    metrics = trainer.evaluate()

    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    sizes = {name: getattr(trainer.model.config, name) for name in (*sizes, "max_position_embeddings")}
    bert = BertForPreTraining(BertConfig(**sizes)).eval()
    missing = bert.load_state_dict(trainer.model.state_dict(), strict=False)
    assert not missing.unexpected_keys and not missing.missing_keys
    packed = trainer.data_collator(trainer.eval_dataset.__getitems__(range(37)))
    lengths, pair_labels = packed["cu_seq_lens_q"].diff().tolist(), packed["next_sentence_label"]
    ids, types, labels = (
        pad_sequence(packed[name][0].split(lengths), batch_first=True, padding_value=fill)
        for name, fill in (("input_ids", 0), ("token_type_ids", 0), ("labels", -100))
    )
    mask = pad_sequence([torch.ones(length) for length in lengths], batch_first=True)
    with torch.no_grad():
        out = bert(ids, attention_mask=mask, token_type_ids=types)
    chosen = labels != -100
    mlm_loss = cross_entropy(out.prediction_logits[chosen], labels[chosen]).item()
    nsp_loss = cross_entropy(out.seq_relationship_logits, pair_labels).item()
    expected = {
        "eval_mlm_loss": mlm_loss,
        "eval_mlm_accuracy": (out.prediction_logits.argmax(-1) == labels)[chosen].float().mean().item(),
        "eval_perplexity": torch.tensor(mlm_loss).exp().item(),
        "eval_mlm_tokens": chosen.sum().item(),
        "eval_nsp_loss": nsp_loss,
        "eval_nsp_accuracy": (out.seq_relationship_logits.argmax(-1) == pair_labels).float().mean().item(),
        "eval_nsp_pairs": 37,
        "eval_loss": mlm_loss + nsp_loss,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-5)

    most = labels[chosen].bincount().max().item() / chosen.sum().item()
    baselines = constant_baselines(trainer.eval_dataset, trainer.data_collator.masker, batch_size=10)
    share = pair_labels.float().mean().item()
    assert baselines == pytest.approx({"mlm_accuracy": most, "nsp_accuracy": max(share, 1 - share)})


def test_a_perplexity_that_overflows_is_infinite_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics_of(np.array([[1.0, 1e3, 0, 0, 0, 0]]))["perplexity"] == math.inf


def test_evaluation_masks_never_change(make_trainer):
    trainer = make_trainer(max_steps=4, eval_strategy="steps", eval_steps=2)
    assert trainer.evaluate() | TIMES == trainer.evaluate() | TIMES
    before = trainer.evaluate()["eval_mlm_tokens"]
    trainer.train()
    logged = [log for log in trainer.state.log_history if "eval_mlm_loss" in log]
    assert [log["step"] for log in logged[-2:]] == [2, 4]
    assert logged[-1]["eval_mlm_loss"] == trainer.evaluate()["eval_mlm_loss"] < logged[0]["eval_mlm_loss"]
    assert {log["eval_mlm_tokens"] for log in logged} == {before}


def test_a_corpus_without_pairs_trains_and_evaluates_on_tokens_only(make_trainer, pairs):
    trainer = make_trainer(train=pairs(64).remove_columns("next_sentence_label"), max_steps=2, logging_steps=1)
    trainer.eval_dataset.has_pairs = False
    trainer.eval_dataset.corpus = trainer.eval_dataset.corpus.remove_columns("next_sentence_label")
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["loss"] == pytest.approx(log["mlm_loss"])
    assert "nsp_loss" not in log
    assert not [name for name in trainer.evaluate() if "nsp" in name]


def test_biases_and_norms_do_not_decay(make_trainer):
    trainer = make_trainer()
    decayed, spared = trainer.create_optimizer().param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    names = {id(p): name for name, p in trainer.model.named_parameters()}
    assert all(names[id(p)].endswith("weight") and "LayerNorm" not in names[id(p)] for p in decayed["params"])
    assert all("bias" in names[id(p)] or "LayerNorm" in names[id(p)] for p in spared["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(names)
