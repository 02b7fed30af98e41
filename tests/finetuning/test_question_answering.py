"""question-answering: SQuAD files, windows, spans, scores, and the threshold for "no answer"."""

import functools
import json

import numpy as np
import pytest
from datasets import Dataset
from new_tasks import task_of
from transformers import pipeline

from modeling_mybert import MyBertConfig, MyBertForQuestionAnswering
from modeling_mybert.answer_decoding_mybert import encode_windows
from mybert import Predictor
from mybert.finetuning.arguments import FinetuningArguments
from mybert.rows.splits import Split
from mybert.tasks.reading import usable_rows
from mybert.training.trainer import RunTrainer
from tokenization import MyBertTokenizer

ROW = {"question": "who", "context": "the good film", "answers": {"text": ["good film"], "answer_start": [4]}}


NONE = {"text": [], "answer_start": []}
task = functools.partial(task_of, "question-answering")


def in_file(rows: list[dict]) -> Split:
    data = Dataset.from_list(rows)
    return Split("rows.jsonl", data, lambda: data, range(len(rows)))


def test_a_stride_may_be_one_token_less_than_a_window(tiny_checkpoint):
    rows, tokenizer = Dataset.from_list([ROW]), MyBertTokenizer.from_pretrained(tiny_checkpoint)
    assert len(task(max_length=16, stride=11).features(rows, tokenizer, training=False))


def test_the_loss_of_a_step_does_not_depend_on_the_batch_size(tmp_path):
    """Trainer counts `labels` only; three answers in batches of two would weigh 1/4, 1/4 and 1/2."""
    config = MyBertConfig.from_size("tiny", vocab_size=50, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    weights = MyBertForQuestionAnswering(config).state_dict()
    ids = [2, *range(5, 9), 3]
    rows = [{"input_ids": ids, "start_positions": start, "end_positions": start + 1} for start in (1, 2, 3)]
    found = []
    for size in (2, 3):
        model = MyBertForQuestionAnswering(config)
        model.load_state_dict(weights)
        choices = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False, "use_cpu": True}
        choices |= {"num_train_epochs": 1, "learning_rate": 1e-3, "logging_steps": 1, "max_grad_norm": 1e9}
        choices |= {"per_device_train_batch_size": size, "gradient_accumulation_steps": 2 if size == 2 else 1}
        arguments = FinetuningArguments(output_dir=str(tmp_path), disable_tqdm=True, **choices)
        trainer = RunTrainer(model, arguments, train_dataset=rows)
        trainer.train()
        found.append(trainer.state.log_history[0])
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-6)
    assert found[0]["grad_norm"] == pytest.approx(found[1]["grad_norm"], rel=1e-5)


def test_a_squad_file_becomes_rows(tmp_path):
    questions = [
        {"id": "1", "question": "who", "answers": [{"text": "good film", "answer_start": 4}]},
        {"id": "2", "question": "why", "is_impossible": True, "answers": [], "plausible_answers": []},
        {"id": 3, "question": "why", "is_impossible": True},
    ]
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "the good film", "qas": questions}]}]}))
    table, *_ = task().read(path)
    assert table["id"][:] == ["1", "2", "3"]
    rows = task().by_role(table, str(path), labelled=True)[0]
    silent = {**ROW, "question": "why", "answers": NONE}
    assert rows.to_list() == [ROW, silent, silent]
    path.write_text(json.dumps([ROW]))
    assert task().read(path) is None


@pytest.mark.parametrize(
    "answers",
    [
        [{"text": "good film", "answer_start": 4}],
        '{"text": ["good film"], "answer_start": [4]}',
        "{'text': array(['good film'], dtype=object), 'answer_start': array([4], dtype=int32)}",
        {"text": ["good film"], "answer_start": [4.0]},  # of a column with one fraction, all are floats
    ],
)
def test_answers_may_be_a_list_or_a_cell_of_a_table(answers):
    rows = task().prepare(Dataset.from_list([{**ROW, "answers": answers}]))
    assert rows["answers"][:] == [ROW["answers"]] and not task().check_rows(rows, training=True)


def test_the_target_of_a_window_is_the_answer_or_cls_and_decodes_to_the_answer(tiny_checkpoint):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    words = ["the"] * 40
    words[23:25] = ["good", "film"]
    start = len(" ".join(words[:23])) + 1
    long = {**ROW, "context": " ".join(words), "answers": {"text": ["good film"], "answer_start": [start]}}
    rows = Dataset.from_list([long, ROW])
    made = task(max_length=20, max_answer_length=4)
    features = made.features(rows, tokenizer, training=False)
    trained = made.features(rows, tokenizer, training=True)
    assert {*features.column_names} - {*trained.column_names} == {"begin", "first", "offsets"}  # large, not read
    assert trained.to_list() == features.select_columns(trained.column_names).to_list()
    pointed = 0
    for feature in features:
        predicted = feature["input_ids"][feature["start_positions"] : feature["end_positions"] + 1]
        whole = tokenizer.decode(feature["input_ids"]).count("good film")
        assert tokenizer.decode(predicted) == ("good film" if whole else "[CLS]")
        pointed += whole
    assert pointed >= 2 and len(features) > 3
    logits = []
    for feature in features:
        scores = np.zeros((len(feature["input_ids"]) + 3, 2), dtype=np.float32)  # padding
        scores[len(feature["input_ids"]) :] = 99
        scores[feature["start_positions"], 0] = scores[feature["end_positions"], 1] = 5
        logits.append(scores)
    predicted = made.decode(logits, features, rows)
    assert [(one["answer"], one["start"]) for one in predicted] == [("good film", start), ("good film", 4)]
    assert predicted[0]["score"] == 10 and len(predicted[0]["n_best"]) == 20
    assert made.score(predicted, made.references(rows)) == {"exact_match": 1, "f1": 1}


def test_without_unanswerable_rows_there_is_always_an_answer_and_the_first_line_counts_them():
    unanswerable = {**ROW, "answers": NONE}
    for rows, threshold, counts in (
        ([ROW], None, "1 question with an answer"),
        ([ROW, ROW, unanswerable], 0, "2 questions with an answer, 1 without"),
    ):
        assert task().fitted(Dataset.from_list(rows)).config.no_answer_threshold == threshold
        assert task().summary(Dataset.from_list(rows)) == f"question-answering: {counts}"


def test_a_question_that_leaves_no_room_for_context_is_left_out(tiny_checkpoint):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    made = task(max_length=16)
    rows = [{**ROW, "question": question} for question in ("the " * 12, " ", "the " * 13)]
    split = in_file(rows)
    usable = usable_rows(split, made, tokenizer, training=True, errors="skip").rows
    assert usable.to_list() == rows[:1]
    assert made.features(usable, tokenizer, training=False)["offsets"][0] == [[0, 3]]


@pytest.mark.slow
def test_answers_and_no_answers_are_learned_and_the_pipeline_uses_the_threshold(finetuned):
    rows = []
    for noun in ("film", "book", "song", "play", "story", "scene"):
        for word in ("good", "fine", "lovely", "great"):
            for one, answers in ((word, {"text": [word], "answer_start": [9]}), ("bad", NONE)):
                rows.append({"question": "the yes", "context": f"the very {one} {noun} yes", "answers": answers})
    folder = finetuned("question-answering", rows, "--num-train-epochs", 6, validation=rows)
    metrics = json.loads((folder / "results.json").read_text())["validation"]["metrics"]
    assert metrics["f1"] > 0.9 and metrics["exact_match"] > 0.9
    assert MyBertConfig.from_pretrained(folder).no_answer_threshold != 0
    long = "the very bad film no " * 20 + "the very good film yes"  # several windows of the trained length
    asked = [*rows[:4], {"question": "the yes", "context": long, "answers": None}]
    predicted = Predictor(folder, device="cpu")([(row["question"], row["context"]) for row in asked])
    travelling = pipeline("question-answering", model=str(folder), device="cpu", trust_remote_code=True)
    for row, one in zip(asked, predicted, strict=True):
        other = travelling(question=row["question"], context=row["context"])
        assert (one["answer"], one["start"], one["end"]) == (other["answer"], other["start"], other["end"])
        assert one["no_answer_score"] == pytest.approx(other["no_answer_score"], abs=1e-4)


def test_an_answer_at_the_edge_of_its_context_is_trained_as_an_answer(tiny_checkpoint):
    edges = {
        "the answer is foo ": "foo ",
        " foo is it": " foo",
        "it is foo\u200b": "foo\u200b",
        "naive\u0301": "naive\u0301",
    }
    rows = Dataset.from_list(
        [
            {"question": "what?", "context": one, "answers": {"text": [answer], "answer_start": [one.index(answer)]}}
            for one, answer in edges.items()
        ]
    )
    features = task().features(rows, MyBertTokenizer.from_pretrained(tiny_checkpoint), training=True)
    assert min(features["start_positions"]) > 0 and len(features) == 4


def test_windows_are_in_order_for_a_tokenizer_that_truncates_on_the_left(tiny_checkpoint):
    sides = ("left", "right")
    left, right = (MyBertTokenizer.from_pretrained(tiny_checkpoint, truncation_side=side) for side in sides)
    found, expected = (encode_windows(each, "very", "good bad film " * 9, 14, 2, 3) for each in (left, right))
    assert found.encoding["offset_mapping"] == expected.encoding["offset_mapping"]
    assert len(expected.encoding["input_ids"]) > 2 and left.truncation_side == "left"
