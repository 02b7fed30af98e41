"""Messages of `mybert finetune`: for each bad row, file and setting, what its one line must say."""

import json
import shutil

import pytest
from json_files import write_lines

TEXT, PAIR = {"text": "a good film", "label": "good"}, {"premise": "a film", "hypothesis": "a book", "label": "yes"}
SEVERAL, NUMBER = {"text": "a film", "label": ["good", "new"]}, {"text": "a film", "label": 2.5}
TAGS, SPANS = {"tokens": ["a", "b"], "tags": ["B-PER", "O"]}, {"text": "Ada met Bo Lee.", "spans": [[0, 3, "PER"]]}
ANSWER = {"question": "who", "context": "the good film", "answers": {"text": ["good film"], "answer_start": [4]}}
CHOICE = {"context": "the film", "choices": ["one", "two"], "label": "A"}
REFUSED = {  # a good row, what is wrong in another one, and words of the message
    "text-classification": [
        (TEXT, {"text": " "}, "the text is empty"),
        (TEXT, {"text": ["b"]}, "the text is ['b'], not a string"),
        (TEXT, {"label": None}, "the label is missing"),
        (TEXT, {"label": " "}, "the label is missing"),
        (PAIR, {"hypothesis": None}, "the text_pair is missing"),
        (SEVERAL, {"label": "good"}, "the labels 'good' are not a list"),
        (NUMBER, {"label": 1e39}, "the label 1e+39 is too large for float32"),
        *((SEVERAL | {"label": "['a']"}, {"label": label}, label) for label in ("['a', b]", "['a'", "[a]", "[nan]")),
    ],
    "token-classification": [
        (TAGS, {"tags": ["O"]}, "2 tokens, but 1 tag"),
        (TAGS, {"tokens": [], "tags": []}, "the sentence is empty"),
        (TAGS, {"tokens": ["a", " "]}, "token 2 is empty"),
        (TAGS, {"tags": ["O", None]}, "token 2 ('b'): the label is missing"),
        (SPANS, {"spans": [[0, 3, "PER"], [0, 7, "LOC"]]}, "'Ada' (PER) and 'Ada met' (LOC) share a word"),
        (SPANS, {"spans": [[0, 99, "PER"]]}, "0 to 99 (PER) lies outside the text of 15 characters"),
        (SPANS, {"spans": [[3, 4, "PER"]]}, "3 to 4 (PER) holds no word"),
        (SPANS, {"spans": [[0, 3, ""]]}, "expected spans of start, end and one label"),
        (SPANS, {"spans": [{"start": 0, "end": 3, "labels": ["PER", "LOC"]}]}, "one label"),
        (SPANS, {"spans": None}, "write [] for a text without entities"),
        (SPANS, {"spans": [], "answer": "reject", "_task_hash": 1}, "answer is 'reject'"),
        (SPANS, {"text": " ", "spans": []}, "the sentence is empty"),
        (SPANS, {"spans": [{"result": []}, {"result": []}]}, "2 finished annotations; keep one"),
        (SPANS, {"spans": [{"result": [], "was_cancelled": True}]}, "0 finished annotations"),
    ],
    "question-answering": [
        (ANSWER, {"answers": {"text": ["film"], "answer_start": [4]}}, "('good' does); the context has it at 9"),
        (ANSWER, {"answers": {"text": ["book"], "answer_start": [9]}}, "('film' does); the context does not have it"),
        (ANSWER, {"answers": {"text": ["film"], "answer_start": []}}, "1 answer, but 0 answer_start"),
        (ANSWER, {"answers": None}, "expected answers {'text'"),
        (ANSWER, {"question": " "}, "the question is empty"),
    ],
    "multiple-choice": [
        (CHOICE, {"label": "C"}, "the label 'C' is none of the choices"),
        (CHOICE, {"label": None}, "the label is missing"),
        (CHOICE, {"label": "9" * 5000}, "the label '999"),
        (CHOICE, {"choices": ["one"]}, "expected two or more choices, found ['one']"),
        (CHOICE, {"choices": ["one", "two", "three"]}, "3 choices, most rows have 2"),
        (CHOICE, {"choices": ["one", ""]}, "choice 1 is empty"),
        (CHOICE, {"context": " "}, "the context is empty"),
    ],
}

LOOKED_FOR = "text, sentence1, premise, question1, question, sentence, review, document, content, body, tweet, data"
NUMBERS = "text,label\n" + "".join(f"a,{i / 2}\n" for i in range(1, 19))
CONLL, NAMED = "a b c d\ne f g h\n\n", "word pos ner\nAnn NNP O\n\n"
STUDIO = {"data": {"text": "a film"}, "predictions": [{"result": [{"type": "choices", "value": {"choices": ["x"]}}]}]}
ARGILLA = {"fields": {"text": "a film"}, "suggestions": {"label": {"value": "x"}}, "responses": {}}
VECTORS = [[True, False], [1, 0], [0.9, 0.1], "[ True False]"]
NO_LABEL = "3 of 3 rows cannot be used: rows 1, 2, 3: the label is missing"
NO_NUMBER = "question 1: expected an object with … 'answer_start', a whole number"


def labels(*values) -> list[dict]:
    return [{"text": f"text {number}", "label": value} for number, value in enumerate(values)]


def squad(question: dict, context: str = "the good film") -> dict:
    return {"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}


def answer(start) -> dict:
    return squad({"question": "who", "answers": [{"text": "f", "answer_start": start}]})


FILES = {  # of a task: name, content and options; " … " in a message stands for anything
    "text-classification": [
        ("train.jsonl", "", "", "train.jsonl is empty"),
        ("train.csv", "text,label\n ,a\n", "", "train.csv … are file and columns right?"),
        ("train.csv", "words,opinion\na,good\n", "", f"train.csv has no column for 'text' (looked for {LOOKED_FOR})"),
        ("train.csv", "text,opinion\na,good\n", "", "train.csv … name it by --columns label=COLUMN"),
        (
            *("train.csv", f'{NUMBERS}a,high\na,"2,5"\n', ""),
            "train.csv … line 20: the label 'high' is not a number; "
            "line 21: the label '2,5' is not a number (write 2.5)",
        ),
        ("train.jsonl", labels("good", "good"), "", "rows have only the label ['good']; a classifier needs"),
        ("train.jsonl", labels([], []), "", "the training rows have no labels"),
        *(
            ("train.jsonl", labels(one, one), "", "vectors of numbers or truth values, … --columns label=a,b,c")
            for one in VECTORS
        ),
        ("train.jsonl", labels("good", "bad", "ok"), "--label-names ok=good", "'good'"),
        *(
            ("train.jsonl", labels(*few), "", "1 of 41 labels … 1.5 … --problem regression or --problem single-label")
            for few in ([1.5] + [1, 2] * 20, ["1.5"] + ["1", "2"] * 20)
        ),
        (
            *("train.csv", "text,a,b\nx,0,1\ny,1,0\nz,2,0\n", "--columns label=a,b"),
            "train.csv … line 4: expected 0 or 1 in the label column 'a', found '2'",
        ),
        ("train.csv", "text,a,b\nx,0,1\n", "--columns label=a,c", "train.csv has no column 'c'"),
        (
            *("train.csv", "body,a\nx,y\n", "--columns text=a text=b"),
            "error: --columns text=a text=b: a name before = is given twice",
        ),
        ("train.csv", "body,a\nx,y\n", "--columns text=a label=a", "error: --columns names 'a' twice"),
        (
            *("train.jsonl", labels("x", "y"), "--train train.jsonl train.jsonl"),
            "--train: expected one or several files, each once",
        ),
        ("train.json", [STUDIO] * 3, "", NO_LABEL),
        ("train.json", [ARGILLA] * 3, "", NO_LABEL),
    ],
    "token-classification": [
        ("train.tsv", "1\tAnn\n2\tsings\n\n1\tBo\n", "", "train.tsv has no column for 'tags'"),
        ("train.tsv", "id\tword\n1\tAnn\n2\tsings\n1\tBo\n", "", "train.tsv has no column for 'tags'"),
        *(("train.csv", "id,what,tag\n1,Ann,B-PER\n".replace(",", by), "", "train.csv … --columns") for by in ",;|"),
        ("a.conll", CONLL, "--columns word=2 tag=7", "tags=7: … has no such column; there are columns 1 to 4"),
        ("a.conll", CONLL, "--columns word=0", "--columns tokens=0: … there are columns 1 to 4"),
        ("a.conll", CONLL, "--columns word=form tag=ner", "tokens=form: … there are columns 1 to 4, without names"),
        ("a.conll", CONLL, "--columns word=2 tag=2", "--columns names the column 2 of … twice"),
        ("a.conll", NAMED, "--columns tag=chunk", "tags=chunk: … has no such column; there are word, pos, ner"),
    ],
    "question-answering": [
        ("train.json", squad({"id": "1"}), "", "question 1: expected an object with 'question', a text"),
        ("train.json", squad({"question": "who", "answers": "film"}), "", "object with 'answers', a list"),
        *(
            ("train.json", answer(start), "", f"train.json, article 1, paragraph 1, {NO_NUMBER}")
            for start in (None, "9", 10**20)
        ),
        ("train.json", squad({"question": "who"}, "a \ud83d film"), "", "half a surrogate pair"),
        ("train.json", {"data": []}, "", "train.json holds no questions"),
        (
            *("train.jsonl", [ANSWER | {"answers": {"text": ["Bob", "Bob"], "answer_start": [0, 0]}}] * 2, ""),
            "2 of 2 lines cannot be used: lines 1, 2: the answer 'Bob'",
        ),
    ],
}
SETTINGS = [
    ("--metric bleu", "--metric bleu: expected one of accuracy, f1_macro"),
    ("--max-length 999", "--max-length 999: "),
    ("--model nowhere", "nowhere: no such folder"),
    ("--validation nowhere.jsonl", "nowhere.jsonl: there is no such file"),
    ("--columns body=text", "--columns body=text: text-classification has the columns text"),
    ("--columns text=body", "has no column 'body'; there are text, label"),
    ("--sweep paper --learning-rate 1", "--learning-rate is chosen by the sweep; leave it or --sweep out"),
    ("--patience 2 --eval-strategy no --save-strategy no", "leave it or --eval-strategy no out"),
    ("--n-best 3", "--n-best has no effect on text-classification; leave it out"),
    ("--stride 4", "--stride has no effect without --long-texts window; add that, or leave it out"),
    ("--label-smoothing-factor 0.1 --class-weights", "has no effect with --class-weights; leave it out"),
    ("--slices plase", "--slices plase: "),
    ("--label-names 2=other", "--label-names 2=other"),
    ("--unlabelled rows.jsonl", "no effect without --teacher"),
    ("--temperature 3", "no effect without --teacher"),
    ("--folds 3", "--folds"),
    ("--folds 3 --seeds 2", "--folds"),
    ("--learning-rate nan", "learning_rate: expected 0 or more, found nan"),
    ("--seed -1", "seed: expected 0 or more and below 2**32, found -1"),
    ("--neftune-noise-alpha 5", "neftune_noise_alpha is not supported"),
    ("--dataloader-drop-last true", "dataloader_drop_last is not supported: every row is trained on"),
    ("--prediction-loss-only true", "prediction_loss_only is not supported: checkpoints are chosen by"),
    ("--eval-do-concat-batches false", "eval_do_concat_batches false is not supported"),
    ("--metric-for-best-model bleu", "metric_for_best_model is not supported: the best checkpoint"),
    ("--greater-is-better false", "greater_is_better is not supported"),
    ("--bf16-full-eval true", "bf16_full_eval is not supported: it would round the weights that are kept"),
    ("--push-to-hub true", "push_to_hub is not supported: `mybert push` uploads"),
    ("--use-liger-kernel true", "use_liger_kernel"),
    ("--report-to comet_ml", "comet"),
    ("--deepspeed missing.json", "--deepspeed missing.json: there is no such file"),
    ("--fsdp-config missing.json", "--fsdp-config missing.json: there is no such file"),
    ("--save-strategy no", "value, or add --load-best-model-at-end false"),
    ("--optim adamw_bnb_8bit", ""),
    ("--lr-scheduler-type cosine_with_min_lr", ""),
    ('--lr-scheduler-kwargs {"foo":1}', ""),
    ("--adam-beta1 1.5", ""),
    ("--dataloader-num-workers -1", ""),
]
CASES = [(task, *case) for task, cases in FILES.items() for case in cases]
CASES += [
    (
        *(task, "train.jsonl", [good, good | wrong, good, good], ""),
        f"train.jsonl: 1 of 4 … cannot be used: line 2: … {message} … ; correct them, or leave them out by",
    )
    for task, cases in REFUSED.items()
    for good, wrong, message in cases
]
OPINIONS = [{"text": f"a {label} {noun}", "label": label} for noun in ("film", "book") for label in ("good", "bad")]
CASES += [
    ("text-classification", "train.jsonl", OPINIONS * 8, f"--validation train.jsonl {words}", message)
    for words, message in SETTINGS
]


@pytest.mark.parametrize(("task", "name", "content", "words", "message"), CASES, ids=[case[-1] for case in CASES])
def test_a_mistake_is_one_line_and_costs_no_finished_model(
    finetune_refused, classifier, tmp_path, task, name, content, words, message
):
    if name.endswith("l") and isinstance(content, list):
        write_lines(tmp_path / name, content)
    else:
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    shutil.copytree(classifier, tmp_path / "out")
    finetune_refused(task, ["--train", name, "--overwrite", *words.split()], message)
