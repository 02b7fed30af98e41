"""The question-answering pipeline against brute force over all spans of all windows, scored by transformers' BERT."""

import json
import math
import re

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertForQuestionAnswering, BertTokenizer, pipeline

from modeling_mybert import MyBertForMaskedLM, MyBertForQuestionAnswering, MyBertQuestionAnsweringPipeline
from modeling_mybert.answer_decoding_mybert import encode_windows, windows_to_read
from mybert import Predictor
from mybert.retrieval import words
from tokenization import MyBertTokenizer

QUESTION = "Who keeps the doctor away?"
CONTEXT = (
    "An apple a day keeps the doctor away, says Zoë of 東京大学. The naïve professor — unimpressed — prefers "
    "déjà-vu, [SEP] cheese, and 한국 tea. "
) * 3


@pytest.fixture(scope="session")
def bert_folder(bert_folders):
    return bert_folders("MyBertForQuestionAnswering")


@pytest.fixture(scope="module")
def answer(bert_folder) -> MyBertQuestionAnsweringPipeline:
    model = MyBertForQuestionAnswering.from_pretrained(bert_folder)
    return pipeline("question-answering", model=model, tokenizer=MyBertTokenizer.from_pretrained(bert_folder))


def brute_force(folder, question, context, length, stride, longest, threshold=None) -> tuple[list[dict], float]:
    """All answers, best first, and the score of "no answer", from one window and one span at a time."""
    model, tokenizer = BertForQuestionAnswering.from_pretrained(folder).eval(), BertTokenizer.from_pretrained(folder)
    plain = {"add_special_tokens": False, "split_special_tokens": True}
    question_ids = tokenizer(question, **plain)["input_ids"]
    encoding = tokenizer(context, return_offsets_mapping=True, **plain)
    ids, offsets = encoding["input_ids"], encoding["offset_mapping"]
    room = length - len(question_ids) - 3
    spans, no_answer, begin = {}, math.inf, 0
    while True:
        part = ids[begin : begin + room]
        head = [tokenizer.cls_token_id, *question_ids, tokenizer.sep_token_id]
        tokens = [*head, *part, tokenizer.sep_token_id]
        types = [0] * len(head) + [1] * (len(part) + 1)
        with torch.no_grad():
            output = model(torch.tensor([tokens]), token_type_ids=torch.tensor([types]))
        start, end = output.start_logits[0].tolist(), output.end_logits[0].tolist()
        no_answer = min(no_answer, start[0] + end[0])
        for first in range(len(part)):
            for last in range(first, min(len(part), first + longest)):
                left = math.inf if begin == 0 else first
                right = math.inf if begin + room >= len(ids) else len(part) - 1 - last
                score = start[len(head) + first] + end[len(head) + last]
                span = (begin + first, begin + last)
                if span not in spans or min(left, right) > spans[span][0]:
                    spans[span] = (min(left, right), score)
        if begin + room >= len(ids):
            break
        begin += room - stride
    logits = {span: score for span, (_, score) in spans.items()}
    assert len(logits) == sum(min(longest, len(ids) - first) for first in range(len(ids)))  # every span is scored
    best = max(logits.values())
    if threshold is not None:
        logits[None] = no_answer - threshold
    total = sum(math.exp(logit - best) for logit in logits.values())
    found = {}
    for span, logit in sorted(logits.items(), key=lambda item: -item[1]):
        where = (0, 0) if span is None else (offsets[span[0]][0], offsets[span[1]][1])
        found.setdefault(where, math.exp(logit - best) / total)
    answers = [
        {"score": score, "start": start, "end": end, "answer": context[start:end]}
        for (start, end), score in found.items()
    ]
    return answers, no_answer - best


def same(found: list[dict], expected: list[dict]) -> bool:
    return len(found) == len(expected) and all(
        (a["start"], a["end"], a["answer"]) == (b["start"], b["end"], b["answer"])
        and math.isclose(a["score"], b["score"], rel_tol=1e-3)
        for a, b in zip(found, expected, strict=True)
    )


CASES = [(128, 20, 15, None), (40, 20, 15, -2.5), (40, 14, 15, 12.0), (24, 12, 1, -2.5), (60, 30, 30, None)]


@pytest.mark.parametrize(("length", "stride", "longest", "threshold"), [*CASES, (40, 0, 20, None)])
def test_the_best_answers_equal_those_of_brute_force(answer, bert_folder, length, stride, longest, threshold):
    used = max(stride, longest - 1)  # a shorter stride would cut answers
    expected, no_answer = brute_force(bert_folder, QUESTION, CONTEXT, length, used, longest, threshold)
    options = {"max_seq_len": length, "doc_stride": stride, "max_answer_len": longest, "max_windows": 100}
    found = answer(QUESTION, CONTEXT, top_k=12, no_answer_threshold=threshold, **options)
    assert same(found, expected[:12])
    assert all(math.isclose(a["no_answer_score"], no_answer, abs_tol=1e-3) for a in found)
    assert all(CONTEXT[a["start"] : a["end"]] == a["answer"] for a in found)


@pytest.mark.parametrize(
    ("tuned", "accepted", "where"),
    [
        (None, None, "call"),
        (None, True, "pipeline"),
        (-2.5, None, "call"),
        (-2.5, True, "call"),
        (-2.5, False, "pipeline"),
        (-2.5, False, "call"),
    ],
)
def test_handle_impossible_answer_says_whether_there_may_be_no_answer(
    answer, bert_folder, monkeypatch, tuned, accepted, where
):
    monkeypatch.setattr(answer.model.config, "no_answer_threshold", tuned, raising=False)
    threshold = {None: tuned, True: tuned or 0.0, False: None}[accepted]
    expected, _ = brute_force(bert_folder, QUESTION, CONTEXT, 40, 14, 15, threshold)
    given = {} if accepted is None else {"handle_impossible_answer": accepted}
    at_start, at_call = (given, {}) if where == "pipeline" else ({}, given)
    pipe = pipeline("question-answering", model=answer.model, tokenizer=answer.tokenizer, **at_start)
    ask = {"question": QUESTION, "context": CONTEXT, "max_seq_len": 40, "doc_stride": 14, "max_answer_len": 15}
    ask["max_windows"] = 100
    found = pipe(**ask, **at_call, topk=20_000)
    assert same(found[:12], expected[:12])
    empty, expected_empty = ([a for a in some if not a["answer"]] for some in (found, expected))
    assert same(empty, expected_empty) and len(empty) == (threshold is not None)
    assert same([pipe(**ask, **at_call)], expected[:1])


def test_the_number_of_answers_has_two_names(answer):
    ask = {"question": QUESTION, "context": CONTEXT}
    assert answer(**ask, topk=3) == answer(**ask, top_k=3) == answer(**ask, topk=7, top_k=3)
    assert len(answer(**ask, topk=3)) == 3
    assert answer(QUESTION, CONTEXT) == answer(ask) == answer(**ask, padding="max_length")
    assert answer(ask, {**ask, "question": "Who?"}) == answer([ask, {**ask, "question": "Who?"}])


@pytest.mark.parametrize("most", [1, 3, 5, 50])
def test_a_question_is_cut_after_its_first_tokens(answer, most):
    shorter = {1: "Who", 3: "Who keeps the", 5: "Who keeps the doctor away"}.get(most, QUESTION)
    found = answer(QUESTION, CONTEXT, top_k=5, max_question_len=most)
    assert same(found, answer(shorter, CONTEXT, top_k=5))


@pytest.mark.parametrize("length", [128, 24])
def test_answers_aligned_to_words_are_the_best_spans_extended_to_words(answer, bert_folder, length):
    context = "Unbelievably, the Schrödinger-equationalists reconvened; antidisestablishmentarianism prevailed. " * 2
    unaligned, _ = brute_force(bert_folder, "Who?", context, length, 9, 10)
    words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", context)]
    expected: dict[tuple[int, int], dict] = {}
    for span in unaligned:
        start = next(first for first, end in words if first <= span["start"] < end)
        end = next(end for first, end in words if first < span["end"] <= end)
        expected.setdefault((start, end), {**span, "start": start, "end": end, "answer": context[start:end]})
    assert len(expected) < len(unaligned)
    options = {"max_seq_len": length, "doc_stride": 9, "max_answer_len": 10}
    found = answer("Who?", context, **options, top_k=10_000, align_to_words=True)
    assert same(found[:12], [*expected.values()][:12])
    assert {(a["start"], a["end"]): a["answer"] for a in found} == {k: a["answer"] for k, a in expected.items()}


def test_every_answer_is_returned_once_and_the_scores_sum_to_one(answer):
    found = answer(question="Who?", context="한국 Zoë ate.", top_k=1000, no_answer_threshold=0.0)
    places = [(a["start"], a["end"]) for a in found]
    assert len(set(places)) == len(places)
    assert sorted(a["answer"] for a in found if a["start"] == 3) == ["Zoë", "Zoë ate", "Zoë ate."]
    whole = answer(question="Who?", context="Zoë ate.", top_k=1000, no_answer_threshold=0.0)
    assert math.isclose(sum(a["score"] for a in whole), 1, abs_tol=1e-6)
    assert [a["score"] for a in whole] == sorted((a["score"] for a in whole), reverse=True)


@given(
    st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=60),
    st.sampled_from(["", "Ångström x́ 東京 👩‍👩‍👧 ﬁn e\u0301té ẞ İstanbul "]),
)
@settings(max_examples=40)
def test_an_answer_is_the_text_between_its_offsets_for_all_characters(answer, noise, text):
    context = f"start {noise}{text * 6}"
    for found in answer(question="What?", context=context, top_k=5, max_seq_len=32, doc_stride=8, max_answer_len=4):
        assert found["answer"] == context[found["start"] : found["end"]]
        assert found["answer"].strip()


@pytest.mark.parametrize("side", ["right", "left"])
def test_answers_do_not_depend_on_batches_or_on_the_form_of_the_input(answer, side, monkeypatch):
    monkeypatch.setattr(answer.tokenizer, "padding_side", side)
    asked = [{"question": q, "context": c} for q in ("Who?", QUESTION) for c in (CONTEXT, "Nobody.", CONTEXT[:90])]
    options = {"max_seq_len": 48, "doc_stride": 16, "max_answer_len": 8, "top_k": 3}
    one_by_one = [answer(example, **options) for example in asked]
    questions, contexts = ([example[name] for example in asked] for name in ("question", "context"))
    for found in (
        answer(asked, batch_size=4, **options),
        list(answer((example for example in asked), batch_size=3, **options)),
        list(answer(Dataset.from_list(asked), batch_size=3, **options)),
        answer(question=questions, context=contexts, batch_size=5, **options),
    ):
        assert all(same(a, b) for a, b in zip(found, one_by_one, strict=True))
    assert same(answer(question=["Who?"], context="Nobody.", **options)[0], one_by_one[1])
    assert answer([]) == []


def test_an_explicit_threshold_overrides_the_configuration(answer, monkeypatch):
    ask = {"question": QUESTION, "context": CONTEXT}
    margin = answer(ask)["no_answer_score"]
    assert answer(ask)["answer"]
    monkeypatch.setattr(answer.model.config, "no_answer_threshold", margin - 0.01, raising=False)
    assert answer(ask)["answer"] == ""
    assert answer(ask, no_answer_threshold=margin + 0.01)["answer"] != ""
    assert answer(ask, no_answer_threshold=math.inf)["answer"] != ""


def test_a_literal_separator_in_the_question_is_text(answer):
    context = "The answer stands here."
    found = answer(question="one [SEP] two [SEP] three?", context=context, top_k=50)
    assert all(a["answer"] == context[a["start"] : a["end"]] for a in found)
    assert max(a["end"] for a in found) <= len(context)


@pytest.mark.parametrize(
    ("asked", "options", "message"),
    [
        ({"question": "", "context": "x"}, {}, "question must be a string with text in it"),
        ({"question": "q", "context": " "}, {}, "context must be a string with text in it"),
        ({"question": "q"}, {}, "needs a question and a context"),
        ("Who?", {}, "a dictionary of question and context, got 'Who[?]'"),
        ({"question": "q", "context": "\u200d"}, {}, "no token"),
        ({"question": "q " * 50, "context": "x"}, {"max_seq_len": 40}, "50 tokens and leaves no room"),
        ({"question": "q", "context": "x"}, {"max_seq_len": 129}, "more than the 128 positions"),
        ({"question": "q", "context": "x"}, {"top_k": 0}, "top_k must be at least 1"),
        ({"question": "q", "context": "x"}, {"topk": 0}, "top_k must be at least 1"),
        (
            {"question": "q", "context": "x"},
            {"max_seq_len": 40, "doc_stride": 41},
            "doc_stride 41 is more than the 40",
        ),
        (
            {"question": "q", "context": "x"},
            {"handle_impossible_answer": False, "no_answer_threshold": 0.0},
            "there is always an answer",
        ),
        (None, {"question": ["a", "b"], "context": ["c"]}, "2 questions but 1 contexts"),
        (None, {"question": "a"}, "give question and context"),
    ],
)
def test_invalid_inputs_are_named(answer, asked, options, message):
    with pytest.raises(ValueError, match=message):
        answer(asked, **options)


def test_a_model_without_the_head_is_refused(tiny_config, bert_folder):
    with pytest.raises(ValueError, match="MyBertForMaskedLM has no question-answering head"):
        MyBertQuestionAnsweringPipeline(
            model=MyBertForMaskedLM(tiny_config), tokenizer=BertTokenizer.from_pretrained(bert_folder)
        )


ANSWER = """
import json
from transformers import pipeline
asked = json.loads(sys.argv[1])
for folder, other, task in (("saved", "again", "question-answering"), ("again", "third", None)):
    answer = pipeline(task, model=folder, trust_remote_code=True)
    print(json.dumps(answer(**asked)))
    str(answer.model.config)
    answer.model.save_pretrained(other)
    answer.tokenizer.save_pretrained(other)
"""


def test_a_saved_folder_and_what_is_saved_from_it_answer_in_a_process_without_this_package(
    answer, tmp_path, run_foreign
):
    answer.save_pretrained(tmp_path / "whole")
    answer.model.save_pretrained(tmp_path / "saved")
    answer.tokenizer.save_pretrained(tmp_path / "saved")
    asked = {"question": QUESTION, "context": CONTEXT, "top_k": 3, "max_seq_len": 48, "batch_size": 2}
    expected = answer(**asked)
    found = [json.loads(line) for line in run_foreign(ANSWER, json.dumps(asked))]
    assert len(found) == 2
    assert all(same(answers, expected) for answers in found)
    for folder in ("whole", "saved", "again", "third"):
        config = json.loads((tmp_path / folder / "config.json").read_text())
        assert list(config["custom_pipelines"]) == ["question-answering"]
        assert (tmp_path / folder / "question_answering_mybert.py").is_file()


def test_a_checkpoint_without_the_head_has_no_pipeline(answer, tmp_path):
    MyBertForMaskedLM(answer.model.config).save_pretrained(tmp_path)
    assert "custom_pipelines" not in json.loads((tmp_path / "config.json").read_text())


def test_of_many_windows_those_with_the_best_bm25_scores_are_read(answer, bert_folder, monkeypatch, tmp_path):
    """The scores are those of `mybert index`, with tokens as words and without a weight of lengths."""
    monkeypatch.setattr(words, "B", 0.0)
    context = CONTEXT + "Nobody knows. " * 40 + "The doctor keeps apples. " + CONTEXT
    encoding = encode_windows(answer.tokenizer, QUESTION, context, 40, 10, 5).encoding
    parts = [
        [
            " ".join(f"t{token}" for token, own in zip(ids, encoding.sequence_ids(i), strict=True) if own == part)
            for part in (0, 1)
        ]
        for i, ids in enumerate(encoding["input_ids"])
    ]
    search = words.Words.of([text for _, text in parts], "any")
    scores = search.scores(" ".join({*parts[0][0].split()}))
    for most in (1, 3, 8, len(parts) - 1):
        kept = windows_to_read(encoding, most)
        rest = sorted({*range(len(parts))} - {*kept})
        assert kept == sorted(kept) and len(kept) == most
        assert scores[kept].min() >= scores[rest].max() - 1e-6
    assert windows_to_read(encoding, len(parts)) == [*range(len(parts))]
    answer.save_pretrained(tmp_path)
    asked = {"max_length": 40, "stride": 10, "max_answer_length": 5, "max_windows": 3}
    (one,) = Predictor(tmp_path, device="cpu", **asked)([(QUESTION, context)])
    named = {"max_seq_len": 40, "doc_stride": 10, "max_answer_len": 5}
    found = answer(QUESTION, context, **named, max_windows=3)
    assert (one["answer"], one["start"], one["end"]) == (found["answer"], found["start"], found["end"])
    assert one["no_answer_score"] == pytest.approx(found["no_answer_score"], abs=1e-4)
    assert answer(QUESTION, context, **named, max_windows=100)["no_answer_score"] != found["no_answer_score"]


@pytest.mark.parametrize("overlap", [0, 16])
def test_windows_are_those_stored_in_the_checkpoint(answer, monkeypatch, overlap):
    stored = {"max_length": 48, "stride": overlap, "max_answer_length": 4}
    named = answer(question=QUESTION, context=CONTEXT, max_seq_len=48, doc_stride=overlap, max_answer_len=4)
    assert answer(question=QUESTION, context=CONTEXT) != named
    monkeypatch.setattr(answer.model.config, "finetuned", stored, raising=False)
    assert answer(question=QUESTION, context=CONTEXT) == named
