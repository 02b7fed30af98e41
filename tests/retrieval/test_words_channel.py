"""A channel of words: what it keeps, what it adds, and who reads the result."""

import contextlib
import io
import json
import re
import shlex
import signal

import numpy as np
import pytest
import torch
from json_files import write_lines
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import Ridge
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, MPNetConfig, MPNetModel

from mybert import Embedder, cli
from mybert.retrieval import kinds, trainer, training
from mybert.retrieval.latent_semantics import LatentSemantics
from mybert.retrieval.widening import can_widen, widen
from mybert.retrieval.words_channel import add_words_channel, can_have_words
from mybert.training.words_dimensions import words_dimensions

SUBJECTS = ("cat", "dog", "ship", "train", "river", "mountain", "king", "doctor", "garden", "market")
VERBS = ("sees", "paints", "leaves", "follows", "remembers", "describes")
TEXTS = [
    f"The {a} {verb} the old {b} near {c}."
    for a in SUBJECTS
    for verb in VERBS
    for b, c in zip(SUBJECTS[1:], VERBS, strict=False)
]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("documents") / "documents.jsonl", [{"text": text} for text in TEXTS])


@pytest.fixture
def rows(tmp_path):
    return write_lines(tmp_path / "rows.jsonl", [{"query": t.split()[1], "positive": t} for t in TEXTS[::40]])


def test_a_wider_encoder_computes_the_same_in_the_old_dimensions(minilm_folder):
    old = BertModel.from_pretrained(minilm_folder).eval()
    wide = widen(old, 100)
    assert (wide.config.hidden_size, wide.config.num_attention_heads) == (512, 16), "whole heads of 32"
    tokenizer = SentenceTransformer(str(minilm_folder), device="cpu").tokenizer
    inputs = tokenizer(["Rivers rise in spring.", "Who wrote Faust?"], padding=True, return_tensors="pt")
    mask = inputs["attention_mask"].bool()
    with torch.no_grad():
        before, after = (model(**inputs).last_hidden_state[mask] for model in (old, wide))
    assert torch.cosine_similarity(before, after[:, :384], dim=-1).min() > 0.999
    assert after[:, 384:].abs().max() < 1e-5 * after[:, :384].abs().max()


@pytest.mark.parametrize("activation", ["gelu_new", "relu", "silu"])
def test_what_layer_norm_would_subtract_is_removed_before_with_usual_activations(tiny_bert, activation):
    old = BertModel.from_pretrained(tiny_bert, hidden_act=activation).eval()
    for norm in (module for module in old.modules() if isinstance(module, torch.nn.LayerNorm)):
        torch.nn.init.normal_(norm.weight, 1, 0.3)
        torch.nn.init.normal_(norm.bias, 0.2, 0.1)
    states = widen(old, 32)(torch.arange(5, 25)[None]).last_hidden_state
    assert states[..., 32:].abs().max() < 1e-5 < states[..., :32].abs().max()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_before_and_a_regression_of_the_words_on_the_tokens(minilm_folder, pooling):
    """The regression is repeated on counts of tokens, without what LayerNorm makes of them."""
    model, start = (SentenceTransformer(str(minilm_folder), device="cpu") for _ in range(2))
    for one in (model, start):
        one[1].pooling_mode = pooling
    assert can_have_words(model)
    words = LatentSemantics(TEXTS, 0)
    queries, held_out = [" ".join(text.split()[1:3]) for text in TEXTS[::2]], TEXTS[1::7]
    add_words_channel(model, queries, [text for text in TEXTS if text not in held_out], words, 0.5)
    before, after = (one.encode(held_out, normalize_embeddings=False) for one in (start, model))
    old, new = after[:, :384], after[:, 384:]
    cosines = (old * before).sum(1) / np.linalg.norm(old, axis=1) / np.linalg.norm(before, axis=1)
    assert cosines.min() > 0.97
    lengths = np.linalg.norm(new, axis=1) / np.linalg.norm(old, axis=1)
    assert 0.4 < lengths.mean() < 0.6

    def agreement(vectors: np.ndarray) -> float:
        unit, target = vectors / np.linalg.norm(vectors, axis=1, keepdims=True), words.texts(held_out)
        others = ~np.eye(len(held_out), dtype=bool)
        return np.corrcoef((unit @ unit.T)[others], (target @ target.T)[others])[0, 1]

    counts = np.zeros((len(TEXTS), model.tokenizer.vocab_size))
    for row, text in enumerate(TEXTS):
        np.add.at(counts[row], model.tokenizer(text)["input_ids"], 1)
    known = [text not in held_out for text in TEXTS]
    linear = Ridge(0.1).fit(counts[known], words.texts(TEXTS)[known])
    assert agreement(new) > 0.9 * agreement(linear.predict(counts[~np.array(known)]))
    assert agreement(new) > agreement(before) + 0.05


@pytest.mark.filterwarnings("error::numpy.exceptions.RankWarning")
def test_texts_without_known_words_leave_finite_vectors(tiny_bert):
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    add_words_channel(model, ["Who?"], ["Where?", "What?"], LatentSemantics(TEXTS, 0), 0.5)
    assert np.isfinite(model.encode(["Who?", *TEXTS[:2]])).all()


def test_documents_in_a_script_without_tokens_leave_the_vectors_as_they_are(tiny_bert, capsys):
    texts = ["ድመት ውሻን በወንዝ ያያል", "መርከብ በባህር ላይ ይጓዛል", "ንጉሥ በተራራ ላይ ይኖራል"]
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    before = model.encode(TEXTS[:2])
    assert set(model.tokenizer(texts[0], add_special_tokens=False)["input_ids"]) == {model.tokenizer.unk_token_id}
    add_words_channel(model, texts, texts, LatentSemantics(texts, 0), 0.5)
    after = model.encode(TEXTS[:2])
    assert np.allclose(after[:, :32], before, atol=0.05) and np.abs(after[:, 32:]).max() < 1e-4
    assert "the model's vocabulary has no token of them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (MPNetModel, MPNetConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)),
        (DistilBertModel, DistilBertConfig(dim=32, n_layers=1, n_heads=2)),
        (BertModel, BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, hidden_act="tanh")),
    ],
)
def test_other_architectures_and_activations_cannot_be_widened(kind, config):
    assert not can_widen(kind(config))


@pytest.mark.parametrize("number", ["128", True, 12, 160, 1000])
def test_only_dimensions_that_no_layer_writes_are_replaced(tiny_bert, number):
    """Of a trained model they are kept: a new channel is added beside them."""
    model = widen(BertModel.from_pretrained(tiny_bert), 128)
    assert words_dimensions(model) == 128
    model.config.words_dimensions = number
    assert words_dimensions(model) == 0
    model.config.words_dimensions = 128
    torch.nn.init.normal_(model.encoder.layer[-1].attention.output.dense.weight)
    assert words_dimensions(model) == 0


def run(task: str, *options: object, expected: int = 0) -> None:
    assert cli.main(["finetune", "--task", task, *map(str, options)]) == expected


@pytest.fixture(scope="module")
def alone(tiny_bert, documents, tmp_path_factory):
    """A model that was made of documents alone, and what was printed."""
    out = tmp_path_factory.mktemp("alone") / "out"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kinds, "add_words_channel", None)
            run("retrieval", "--model", tiny_bert, "--documents", documents, "--output", out, "--dry-run")
        run("retrieval", "--model", tiny_bert, "--documents", documents, "--output", out)
    return out, printed.getvalue()


def test_documents_alone_make_a_bert_that_transformers_reads_and_a_second_run_replaces_the_channel(
    alone, documents, tmp_path
):
    out, printed = alone
    assert "32 + 128 of words" in printed and "steps" not in printed
    assert re.search(r"│ finished +│", printed) and not re.search(r"│ trained +│", printed)
    results = json.loads((out / "results.json").read_text())
    assert results["pairs"]["train"] == results["best"]["steps"] == 0
    assert results["held_out"]["metrics"]["ndcg@10"] > results["start"]["metrics"]["ndcg@10"]
    model = BertModel.from_pretrained(out)
    assert model.config.hidden_size == 160 and model.config.model_type == "bert"
    theirs = SentenceTransformer(str(out), device="cpu").encode(TEXTS[:9], normalize_embeddings=True)
    ours = Embedder(str(out), normalize=True).texts(TEXTS[:9])
    assert np.allclose(theirs, ours, atol=1e-5)
    run("retrieval", "--model", out, "--documents", documents, "--output", tmp_path / "two")
    again = SentenceTransformer(str(tmp_path / "two"), device="cpu").encode(TEXTS[:9], normalize_embeddings=True)
    assert again.shape == theirs.shape


def test_the_card_is_not_that_of_the_start_model(tiny_bert, documents, tmp_path):
    start, out = tmp_path / "start", tmp_path / "out"
    SentenceTransformer(str(tiny_bert), device="cpu").save_pretrained(str(start))
    (start / "README.md").write_text("It maps texts to 32 dimensions.")
    run("retrieval", "--model", start, "--documents", documents, "--output", out)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "160 dimensions" in card and "It maps texts" not in card


def test_rows_train_the_model_before_the_channel_is_added(tiny_bert, documents, rows, tmp_path):
    """The first part of a vector is that of the model that the rows alone train."""
    options = ["--train", rows, "--validation-share", "0", "--hard-negatives", "0"]
    options += ["--max-steps", "5", "--learning-rate", "0.001"]
    run("retrieval", *options, "--model", tiny_bert, "--output", tmp_path / "rows")
    run("retrieval", *options, "--model", tiny_bert, "--documents", documents, "--output", tmp_path / "out")
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["pairs"]["train"] == len(TEXTS[::40]) and results["best"]["steps"]
    alone, both = (
        SentenceTransformer(str(tmp_path / name), device="cpu").encode(TEXTS[:9]) for name in ("rows", "out")
    )
    cosines = torch.cosine_similarity(torch.tensor(alone), torch.tensor(both[:, :32]))
    assert cosines.min() > 0.99 and both.shape[1] == 160
    run("retrieval", "--model", tmp_path / "out", "--documents", documents, "--output", tmp_path / "again")
    assert BertModel.from_pretrained(tmp_path / "again").config.hidden_size == 160, "the channel is replaced"
    run("retrieval", *options, "--weight-decay", "1", "--model", tmp_path / "out", "--output", tmp_path / "trained")
    kept, changed = (BertModel.from_pretrained(tmp_path / name).state_dict() for name in ("out", "trained"))
    assert sum(not torch.equal(kept[name], changed[name]) for name in kept) > 20
    for name, value in kept.items():
        if name.endswith(("embeddings.weight", "LayerNorm.weight", "LayerNorm.bias")):
            assert torch.equal(value[..., 32:], changed[name][..., 32:]), name
        elif name.endswith("intermediate.dense.weight"):
            assert torch.equal(value[-8:], changed[name][-8:]), name
        if name.endswith(("query.weight", "key.weight", "value.weight", "intermediate.dense.weight")):
            assert torch.equal(value[:, 32:], changed[name][:, 32:]), name
    assert words_dimensions(BertModel.from_pretrained(tmp_path / "trained")) == 128


def test_cut_vectors_keep_the_most_important_directions(alone, tiny_bert, documents, tmp_path):
    options = ["--model", tiny_bert, "--documents", documents, "--dimensions", "24"]
    run("retrieval", *options, "--output", tmp_path / "cut")
    whole, cut = (SentenceTransformer(str(name), device="cpu") for name in (alone[0], tmp_path / "cut"))
    vectors, rotated = (model.encode(TEXTS, normalize_embeddings=True) for model in (whole, cut))
    assert np.allclose(vectors @ vectors.T, rotated @ rotated.T, atol=1e-4)
    of_24 = np.linalg.svd(vectors, compute_uv=False)[:24]
    assert np.square(rotated[:, :24]).sum() == pytest.approx(np.square(of_24).sum(), rel=0.01)
    ours = Embedder(str(tmp_path / "cut"), normalize=True).texts(TEXTS[:9])
    assert np.allclose(rotated[:9], ours, atol=1e-5)


def test_documents_add_no_words_to_vectors_that_are_no_hidden_states(tiny_bert, documents, rows, tmp_path, capsys):
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    model[1].pooling_mode = "max"
    model.save_pretrained(str(tmp_path / "max"))
    options = ["--model", tmp_path / "max", "--documents", documents, "--output", tmp_path / "out"]
    run("retrieval", *options, "--train", rows, "--max-steps", "1", "--validation-share", "0")
    assert "the documents add no words to its vectors" in capsys.readouterr().out


def test_passages_of_many_documents_are_drawn_from_all_of_them(tiny_bert, documents, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(kinds, "_MOST_REGRESSED", 100)
    monkeypatch.setattr(kinds, "add_words_channel", lambda model, queries, passages, *others: given.extend(passages))
    run("retrieval", "--model", tiny_bert, "--documents", documents, "--output", tmp_path / "out")
    places = [TEXTS.index(text) for text in given]
    assert len(places) == 100 and min(places) < len(TEXTS) / 2 < max(places)


def test_ctrl_c_in_the_evaluation_names_the_command_that_goes_on_and_a_finished_run_is_not_repeated(
    tiny_bert, documents, tmp_path, monkeypatch, capsys, request
):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, handler))
    out, options = tmp_path / "out", ["--model", tiny_bert, "--documents", documents, "--output", tmp_path / "out"]
    with monkeypatch.context() as patch:
        patch.setattr(trainer.HeldOutRetrieval, "__call__", lambda *_: signal.raise_signal(signal.SIGINT))
        run("retrieval", *options, expected=130)
    printed = capsys.readouterr().err
    call = shlex.join(["mybert", "finetune", "--task", "retrieval", *map(str, options), "--resume"])
    assert printed.endswith(f"\nto continue:\n  {call}\nmybert finetune: interrupted\n")
    assert {path.name for path in out.iterdir()} == {"manifest.json"}
    run("retrieval", *options, "--resume")
    assert "is finished" not in capsys.readouterr().out
    monkeypatch.setattr(training, "_prepare", None)
    before = {path: path.read_bytes() for path in out.glob("*.json")}
    run("retrieval", *options, "--resume")
    assert f"the run in {out} is finished: nothing is left to compute" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in out.glob("*.json")}


@pytest.mark.parametrize("include_prompt", [True, False])
def test_the_tokens_of_a_prompt_are_regressed_on_only_where_they_are_pooled(tiny_bert, tmp_path, include_prompt):
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    model[1].include_prompt = include_prompt
    add_words_channel(model, TEXTS[::7], TEXTS, LatentSemantics(TEXTS, 0), 0.5, "query: ", "passage: ")
    table = model[0].model.embeddings.word_embeddings.weight[:, -128:]
    of_prompt, of_text = (table[model.tokenizer.convert_tokens_to_ids(word)].any() for word in ("passage", "ship"))
    assert (bool(of_prompt), bool(of_text)) == (include_prompt, True)


def test_only_the_beginning_of_a_giant_document_is_tokenised(tiny_bert, documents, tmp_path):
    """It ends with a word that no other document has."""
    words = " ".join(TEXTS)
    giant = f"{words} {words} {words} mercury"
    more = tmp_path / "more.jsonl"
    more.write_text(documents.read_text() + json.dumps({"text": giant}) + "\n")
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    model.max_seq_length = 64
    model.save_pretrained(str(tmp_path / "short"))
    read = []
    backend = type(model.tokenizer)
    original = backend.__call__

    def call(self, text, *arguments, **keywords):
        read.extend([text] if isinstance(text, str) else text)
        return original(self, text, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "__call__", call)
        run("retrieval", "--model", tmp_path / "short", "--documents", more, "--output", tmp_path / "out")
    assert len(read) > len(TEXTS) and max(map(len, read)) < len(giant) / 2
