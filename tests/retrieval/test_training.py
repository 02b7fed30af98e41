"""`mybert finetune --task retrieval` and `--task reranking` on a tiny BERT."""

import json
import re
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from json_files import change_json, read_lines, write_lines
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, BertModel

import mybert
from mybert import Embedder, Predictor, cli
from mybert.explanation.similarity import is_encoder
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.settings import BATCH, FinetuneSettings
from mybert.retrieval import kinds, trainer
from mybert.retrieval.balance import LARGEST
from mybert.retrieval.encoder import Reranker
from mybert.retrieval.negatives import add_negatives
from mybert.retrieval.pairs import Pair, Pairs, ScoredPair

FACTS = (
    ("open file", "call open"), ("sky blue", "air scatters"), ("wrote faust", "goethe did"), ("prime", "seven"),
    ("capital france", "paris"), ("largest planet", "jupiter"), ("red fruit", "apple"), ("frozen water", "ice"),
)  # fmt: skip
KINDS = {"title", "heading", "question", "neighbour", "span", "keywords"}
TEXTS = [f"The {q} is what {p} means. It was said by the people of that time." for q, p in FACTS]
QUICK = ("--learning-rate=0.003", "--per-device-train-batch-size=4", "--num-train-epochs=30", "--dropout=0")
QUICK += ("--eval-strategy=steps", "--eval-steps=20", "--save-strategy=steps", "--save-steps=20")
FAST = (*QUICK, "--validation-share", "0")


@pytest.fixture
def rows(tmp_path):
    return write_lines(tmp_path / "rows.jsonl", [{"query": q, "positive": p} for q, p in FACTS])


@pytest.fixture
def documents(tmp_path):
    rows = [{"title": title, "text": text} for (title, _), text in zip(FACTS, TEXTS, strict=True)]
    return write_lines(tmp_path / "documents.jsonl", rows)


@pytest.fixture
def finetune(tiny_bert, tmp_path, capsys):
    def run(task: str, *options, output: str = "out", expected: int = 0) -> str:
        words = ["finetune", "--task", task, "--model", tiny_bert, "--output", tmp_path / output, *options]
        status = cli.main([*map(str, words)])
        printed = capsys.readouterr()
        assert status == expected, printed
        return printed.out + printed.err

    return run


def nearest(vectors: np.ndarray) -> list[int]:
    queries, passages = np.split(vectors, 2)
    return (queries @ passages.T).argmax(1).tolist()


@pytest.mark.parametrize("task", ["retrieval", "reranking"])
def test_several_processes_are_refused(start_processes, tiny_bert, rows, tmp_path, task):
    words = ["--task", task, "--model", tiny_bert, "--train", rows, "--output", tmp_path / "out", "--use-cpu"]
    statuses, text = start_processes(["finetune", *words], count=2)
    assert statuses == [2, 2] and f"--task {task} trains in one process" in text, text
    assert not (tmp_path / "out").exists()


def test_the_output_is_a_sentence_transformers_folder_and_a_bert_chosen_by_held_out_queries(finetune, rows, tmp_path):
    printed = finetune("retrieval", "--train", rows, "--validation", rows, *QUICK)
    out = tmp_path / "out"
    results = json.loads((out / "results.json").read_text())
    assert results["task"] == "retrieval"
    held_out = results["held_out"]["metrics"]
    assert held_out["ndcg@10"] > results["start"]["metrics"]["ndcg@10"]
    assert held_out.keys() == {"ndcg@10", "mrr@10", "recall@100", "map"}
    low, high = results["held_out"]["intervals_95"]["ndcg@10"]
    assert low < held_out["ndcg@10"] <= high and f"{low:.3f} to {high:.3f}" in printed
    assert "8 held-out queries" in printed and "There are few held-out queries" in printed
    assert "nDCG@10" in printed and "no validation rows" not in printed
    log = read_lines(out / "log.jsonl")
    assert max(entry.get("eval_ndcg@10", 0) for entry in log) == pytest.approx(held_out["ndcg@10"], abs=1e-6)
    texts = [text for side in zip(*FACTS, strict=True) for text in side]
    assert is_encoder(str(out))
    model = SentenceTransformer(str(out), device="cpu")
    vectors = model.encode(texts, normalize_embeddings=True)
    assert nearest(vectors) == list(range(len(FACTS)))
    assert np.abs(Embedder(str(out), device="cpu", normalize=True).texts(texts) - vectors).max() < 1e-5
    config = json.loads((out / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertModel"])
    assert "finetuned" not in config
    bert = BertModel.from_pretrained(out)
    encoded = model.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden, mask = bert.eval()(**encoded).last_hidden_state, encoded["attention_mask"][..., None]
    mean = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).numpy()
    assert np.abs(mean - vectors).max() < 1e-5
    assert AutoModel.from_pretrained(out).config.model_type == "bert"
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["stage"], manifest["complete"]) == ("finetune", True)
    for name in ("README.md", "results.json", "log.jsonl", "training_curves.png", "report.html"):
        assert (out / name).stat().st_size
    assert not list(out.rglob("checkpoint-*"))
    check_card(out)


def check_card(out) -> None:
    """The card has no text of the training rows."""
    card = (out / "README.md").read_text("utf-8")
    assert "Training Details" in card
    assert not [text for pair in FACTS for text in pair if text in card and text not in ("prime", "ice")]


@pytest.mark.parametrize("has_documents", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one(finetune, rows, documents, tmp_path, has_documents):
    steps = "--max-steps 6 --save-strategy steps --save-steps 2 --eval-strategy steps --eval-steps 2"
    options = ["--train", rows, "--dropout", "0.1", "--validation", rows, "--per-device-train-batch-size", "4"]
    options += [*steps.split(), *(["--documents", documents] if has_documents else [])]
    finetune("retrieval", *options, output="whole")

    class Stopped(Exception):
        pass

    original, seen = trainer.RetrievalTrainer.training_step, []

    def step(self, *arguments, **keywords):
        seen.append(1)
        if len(seen) == 4:
            raise Stopped
        return original(self, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.RetrievalTrainer, "training_step", step)
        with pytest.raises(Stopped):
            finetune("retrieval", *options)
    assert "2 of 6 planned steps" in finetune("retrieval", *options, "--resume")
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "out"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert "is finished: nothing is left to compute" in finetune("retrieval", *options, "--resume")


def test_the_plan_is_printed_with_the_steps_that_are_trained(finetune, rows, documents, tmp_path):
    for task, some in (("retrieval", ["--train", rows]), ("reranking", ["--train", rows]), ("reranking", [])):
        options = [*some, "--documents", documents, "--mined-pairs", "20", "--num-train-epochs", "1.5"]
        options += ["--per-device-train-batch-size", "8", "--gradient-accumulation-steps", "2"]
        planned, printed = finetune(task, *options, "--dry-run"), finetune(task, *options, "--overwrite")
        plan = planned[planned.index("Plan\n") : planned.index("dry run")]
        assert plan in printed[: printed.index("mean loss")]
        results = json.loads((tmp_path / "out" / "results.json").read_text())
        assert re.search(rf"documents\W+{len(FACTS)}\b", plan) and results["documents"] == len(FACTS)
        assert re.search(rf"steps\W+{results['best']['steps']}\b", plan)
        assert {*re.findall(r"mined: (\w+)", plan)} == {*results["pairs"]["mined"]} <= KINDS


def test_a_resumed_run_names_its_steps_before_anything_is_computed_and_a_signal_stops_it(
    finetune, rows, capsys, monkeypatch
):
    options = ["--train", rows, "--validation", rows, "--per-device-train-batch-size", "4", "--num-train-epochs", "3"]
    score = trainer.HeldOutRetrieval.__call__

    def asked_to_stop(*arguments, **keywords):
        print("held-out queries are scored")
        signal.raise_signal(signal.SIGTERM)
        return score(*arguments, **keywords)

    monkeypatch.setattr(trainer.HeldOutRetrieval, "__call__", asked_to_stop)
    for done in ("no run yet", "1 of 6 planned steps are done"):
        with pytest.raises(SystemExit, match="143"):
            finetune("retrieval", *options, "--resume")
        printed = capsys.readouterr().out
        lines = (done, "held-out queries are scored", "stopped and saved after step")
        assert sorted(lines, key=printed.index) == list(lines)


def test_matryoshka_sizes_and_scored_pairs_train(finetune, rows, tmp_path):
    scored = write_lines(tmp_path / "scored.jsonl", [{"query": q, "positive": p, "score": 0.5} for q, p in FACTS])
    finetune("retrieval", "--train", rows, scored, "--dimensions", "16", "8", *FAST, "--num-train-epochs", "15")
    model = SentenceTransformer(str(tmp_path / "out"), device="cpu", truncate_dim=8)
    vectors = model.encode([text for side in zip(*FACTS, strict=True) for text in side], normalize_embeddings=True)
    assert vectors.shape[1] == 8
    assert np.mean(np.array(nearest(vectors)) == np.arange(len(FACTS))) >= 0.75


def test_a_sentence_encoder_has_a_lower_rate_and_other_tasks_forget_the_weight_of_words(
    finetune, rows, documents, tmp_path, monkeypatch
):
    printed = finetune("retrieval", "--documents", documents, "--mined-pairs", "40", output="new")
    assert json.loads((tmp_path / "new" / "config.json").read_text())["words_weight"] == LARGEST, (
        "it was only pretrained"
    )
    assert "learning-rate" not in printed
    settings = FinetuneSettings(
        task="retrieval", model=str(tmp_path / "new"), documents=[str(documents)], mined_pairs=40, output="second"
    )
    second = kinds.Retrieval(settings, FinetuningArguments(use_cpu=True, per_device_train_batch_size=BATCH))
    second.mine(settings, seed=0)
    assert second.ratio == 3, "a second run has words of the same length"
    cached = tmp_path / "cache" / "models--someone--encoder"
    shutil.copytree(tmp_path / "new", cached / "snapshots" / "0123")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0123")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    one_step = ["--train", rows, "--max-steps", "1", "--validation-share", "0"]
    for model, rate in ((tmp_path / "new", "2e-05"), ("someone/encoder", "2e-05")):
        printed = finetune("retrieval", *one_step, "--model", str(model), "--overwrite", output="again")
        assert f"using --learning-rate {rate}" in printed, "a sentence encoder"
    finetune("reranking", *one_step, "--model", tmp_path / "new", output="reranker")
    labelled = tmp_path / "labelled.csv"
    labelled.write_text("text,label\n" + "".join(f"{q},{number % 2}\n" for number, (q, _) in enumerate(FACTS)))
    classes = ["--train", labelled, "--max-steps", "1", "--validation-share", "0"]
    finetune("text-classification", *classes, "--model", tmp_path / "new", output="classifier")
    for out in ("reranker", "classifier"):
        assert "words_weight" not in json.loads((tmp_path / out / "config.json").read_text())


def test_no_query_of_a_single_document_is_held_out(finetune, tmp_path):
    sentences = [f"The {q} w{n} is what {p} v{n} means to u{n}, said number {n}." for n in range(60) for q, p in FACTS]
    (tmp_path / "book.txt").write_text(" ".join(sentences))
    options = ["--documents", tmp_path / "book.txt", "--mined-pairs", "8", "--dry-run"]
    for seed in (0, 42):  # with 42 the share that is held out has all
        printed = finetune("retrieval", *options, "--seed", str(seed))
        assert re.search(r"held-out queries\W+0\b", printed)


def test_documents_beside_pairs_may_have_few_passages(finetune, rows, tmp_path):
    (tmp_path / "note.txt").write_text(" ".join(TEXTS))
    finetune("retrieval", "--train", rows, "--documents", tmp_path / "note.txt", "--dry-run")


def test_long_documents_are_read_up_to_the_positions_that_were_trained(finetune, tiny_bert, tmp_path):
    short = shutil.copytree(tiny_bert, tmp_path / "short")
    change_json(short / "tokenizer_config.json", model_max_length=16)
    texts = [" ".join([f"The {q} is what {p} means."] * 5) for q, p in FACTS]
    documents = write_lines(tmp_path / "documents.jsonl", [{"text": text} for text in texts])
    options = ["--documents", documents, "--validation-share", "0"]
    printed = finetune("retrieval", *options, "--model", short, output="new")
    assert "the finished model reads" not in printed
    assert SentenceTransformer(str(tmp_path / "new"), device="cpu").max_seq_length == 16
    printed = finetune("retrieval", *options, "--model", tmp_path / "new", output="again")
    positions = json.loads((short / "config.json").read_text())["max_position_embeddings"]
    assert f"100% of the documents have more than 16 tokens: the finished model reads {positions}" in printed


def test_a_reranker_is_read_by_cross_encoder_and_by_the_predictor(finetune, rows, tmp_path):
    longer = ("--learning-rate", "0.005", "--num-train-epochs", "25")
    printed = finetune("reranking", "--train", rows, "--hard-negatives", "2", *FAST, *longer)
    assert re.search(r"negatives  *│ *16 │", printed) and "tokens/s" not in printed  # its tokens are not counted
    out = tmp_path / "out"
    pairs = [(query, passage) for query, _ in FACTS for _, passage in FACTS]
    scores = CrossEncoder(str(out), device="cpu").predict(pairs).reshape(len(FACTS), -1)
    answers = np.eye(len(FACTS), dtype=bool)
    assert scores[answers].mean() > scores[~answers].mean() + 0.1
    ours = [found["score"] for found in Predictor(str(out), device="cpu")(pairs)]
    assert np.abs(np.array(ours) - scores.ravel()).max() < 1e-5
    assert not is_encoder(str(out)), "serve and explain take it for a task"
    config = json.loads((out / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertForSequenceClassification"])
    assert AutoModelForSequenceClassification.from_pretrained(out).config.num_labels == 1
    check_card(out)


def test_a_reranker_reads_no_more_than_its_model_has_positions(finetune, rows, models, tmp_path):
    model = models("encoder")
    finetune("reranking", "--train", rows, "--model", model, *FAST, "--max-steps", "1", "--hard-negatives", "1")
    assert CrossEncoder(str(tmp_path / "out"), device="cpu").max_seq_length == 64
    assert Predictor(str(tmp_path / "out"), device="cpu")([("sea " * 99, "film " * 99)])


@pytest.mark.parametrize("head", ["pairs", "multi", "tagger"])
def test_a_classifier_becomes_a_reranker_with_a_new_head(finetune, rows, models, tmp_path, head):
    printed = finetune("reranking", "--train", rows, "--model", models(head), *FAST, "--max-steps", "1")
    assert "the reranker gets a new one" in printed
    logits = Reranker(str(tmp_path / "out"), device="cpu").scores("open file", ["call open"])
    score = CrossEncoder(str(tmp_path / "out"), device="cpu").predict([("open file", "call open")])
    assert score == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-5)


def test_a_model_of_one_token_type_becomes_a_reranker(finetune, rows, models, tmp_path):
    one = shutil.copytree(models("encoder"), tmp_path / "one")
    weights = load_file(one / "model.safetensors")
    name = next(name for name in weights if "token_type" in name)
    save_file(weights | {name: weights[name][:1].clone()}, one / "model.safetensors", {"format": "pt"})
    change_json(one / "config.json", type_vocab_size=1)
    finetune("reranking", "--train", rows, "--model", one, *FAST, "--max-steps", "1")
    pairs = [(query, passage) for query, passage in FACTS]
    ours = [score["score"] for score in Predictor(str(tmp_path / "out"), device="cpu")(pairs)]
    assert CrossEncoder(str(tmp_path / "out"), device="cpu").predict(pairs) == pytest.approx(ours, abs=1e-5)


def test_a_reranker_that_is_trained_further_has_a_low_rate_and_no_vectors_for_negatives(models, tmp_path):
    CrossEncoder(str(models("regression")), device="cpu").save_pretrained(str(tmp_path / "reranker"))
    SentenceTransformer(str(models("encoder")), device="cpu").save_pretrained(str(tmp_path / "retriever"))
    for name, finds in (("reranker", False), ("retriever", True)):
        settings = FinetuneSettings(task="reranking", model=str(tmp_path / name), train="rows", output="out")
        kind = kinds.Reranking(settings, FinetuningArguments(use_cpu=True))
        assert (kind._retriever is not None) == finds
        assert (kind.learning_rate > 1e-4, kind.has_start) == (finds, not finds)


def test_rerankers_read_the_beginnings_of_giant_texts_whose_pairs_would_take_gigabytes():
    giant = "a sea " * 9999
    data = trainer.reranking_data(Pairs([Pair(giant, giant, (giant,))], [ScoredPair(giant, giant, 0.5)]), 64)
    pairs, scored = data["pairs"][0], data["scored"][0]
    assert {*pairs["passages"], pairs["query"], scored["query"], scored["passage"]} == {giant[: 64 * 16]}


def test_a_reranker_reads_each_negative_once_and_answers_without_a_grade_have_the_highest():
    given = [Pair("a", "first", ("no",)), Pair("a", "second", ("no",)), Pair("b", "third")]
    pairs = Pairs(given, grades={("a", "first"): 3, ("a", "second"): 1})
    data = trainer.reranking_data(add_negatives(pairs, [], 50, 0, None, 100), 64)["pairs"]
    assert data["labels"][0][0] == data["labels"][2][0] == 3 * data["labels"][1][0]
    assert sorted(data["passages"][0]) == ["first", "no", "third"]
    assert data["labels"][0][1:] == [0, 0]


def test_held_out_passages_without_a_word_of_the_query_are_in_no_order(monkeypatch):
    monkeypatch.setattr(kinds, "_RERANKED_PASSAGES", 200)
    train = Pairs([Pair(f"x{number}", f"other {number}") for number in range(100)])
    held_out = Pairs([Pair(f"y{number}", f"answer {number}", (f"wrong {number}",)) for number in range(10)])
    evaluator = kinds.Reranking.evaluator(kinds.Reranking, held_out, train, FinetuningArguments(use_cpu=True))
    evaluator(SimpleNamespace(max_seq_length=64, predict=lambda pairs, **options: np.zeros(len(pairs))))
    assert evaluator.beside["bm25"].mean() < 0.2
    assert {f"wrong {number}" for number in range(10)} <= {*evaluator._texts[0]}


@pytest.mark.parametrize("task", ["retrieval", "reranking"])
def test_the_metric_is_the_mean_of_the_queries(tiny_bert, task):
    relevant = {query: {passage: 1} for query, passage in FACTS}
    texts = [passage for _, passage in FACTS]
    if task == "retrieval":
        evaluator, model = trainer.HeldOutRetrieval(relevant, texts, 4), SentenceTransformer(str(tiny_bert))
    else:
        evaluator = trainer.HeldOutReranking(
            relevant, texts, 3, 4
        )  # BM25 knows no word, so most passages are left out
        model = CrossEncoder(str(tiny_bert), num_labels=1)
    for _ in range(2):
        scores = evaluator(model)
        assert len(evaluator.of_queries) == len(FACTS) and len(set(evaluator.of_queries)) > 2
        assert evaluator.of_queries.mean() == pytest.approx(scores["ndcg@10"])


def test_all_passages_that_answer_held_out_queries_are_among_those_searched(finetune, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "_PASSAGES", 2)
    finetune("retrieval", "--train", rows, "--validation", rows, "--max-steps", "1")
    scores = json.loads((tmp_path / "out/results.json").read_text())["held_out"]["metrics"]
    assert scores["recall@100"] == 1


@pytest.mark.parametrize(
    ("task", "least", "most", "options", "used"),
    [("retrieval", 6, 6, (), 1), ("reranking", 6, 6, (), 4), ("retrieval", 0, 1, ("--hard-negatives=0",), 0)],
)
def test_negatives_of_rows_that_are_not_used_are_named(finetune, tmp_path, task, least, most, options, used):
    counts = [(least, most)[number % 2] for number in range(len(FACTS))]
    given = [
        {"query": q, "positive": p, "negatives": [f"no {n} {q}" for n in range(count)]}
        for (q, p), count in zip(FACTS, counts, strict=True)
    ]
    fixed = ["--train", write_lines(tmp_path / "rows.jsonl", given), *FAST, "--max-steps", "1"]
    unused = (
        f"rows have up to {most} negative{'s' * (most > 1)}; {used} of each are used, all with --hard-negatives {most}"
    )
    assert unused in finetune(task, *fixed, *options)
    assert "of each are used" not in finetune(task, *fixed, "--hard-negatives", most, output="all")


@pytest.mark.parametrize(("words", "expected"), [(15, 64), (90, 512)])
def test_a_model_reads_more_if_the_documents_are_longer(finetune, tiny_bert, tmp_path, words, expected):
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    model.max_seq_length = 64
    model.save_pretrained(str(tmp_path / "short"))
    texts = [" ".join(f"w{number}{place}" for place in range(words)) for number in range(5)]
    documents = write_lines(tmp_path / "documents.jsonl", [{"text": text} for text in texts])
    options = ["--documents", documents, "--model", tmp_path / "short"]
    finetune("retrieval", *options, "--mined-pairs", "8", "--validation-share", "0")
    assert SentenceTransformer(str(tmp_path / "out"), device="cpu").max_seq_length == expected


def test_prompts_of_the_start_model_are_put_before_texts(finetune, rows, tiny_bert, tmp_path):
    model = SentenceTransformer(str(tiny_bert), device="cpu", prompts={"query": "query: ", "passage": "passage: "})
    model.save_pretrained(str(tmp_path / "prompted"))
    read = []
    original = trainer.RetrievalTrainer.training_step

    def step(self, model, inputs, *arguments, **keywords):
        read.append({name: value for name, value in inputs.items() if name.endswith("input_ids")})
        return original(self, model, inputs, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.RetrievalTrainer, "training_step", step)
        finetune("retrieval", "--train", rows, "--max-steps", "1", "--model", tmp_path / "prompted")
    texts = {name: model.tokenizer.batch_decode(ids, skip_special_tokens=True) for name, ids in read[0].items()}
    assert all(text.startswith("query : ") for text in texts["query_input_ids"])
    for name in ("positive_input_ids", "negative_1_input_ids"):
        assert all(text.startswith("passage : ") for text in texts[name])


def test_a_dry_run_of_rows_in_memory_prints_the_plan_and_writes_nothing(tiny_bert, tmp_path, capsys):
    rows = [{"query": q, "positive": p} for q, p in FACTS]
    mybert.finetune(task="retrieval", model=str(tiny_bert), train=rows, output=str(tmp_path / "out"), dry_run=True)
    printed = capsys.readouterr().out
    assert "training pairs" in printed and "held-out queries" in printed
    assert not (tmp_path / "out").exists()
    for task in ("retrieval", "reranking"):
        found = mybert.finetune(
            task=task, model=str(tiny_bert), train=rows, validation=rows, max_steps=1, output=tmp_path / task
        )
        assert found.metrics["held_out"]["ndcg@10"] > 0
        assert "held_out" in (tmp_path / task / "results.json").read_text()
