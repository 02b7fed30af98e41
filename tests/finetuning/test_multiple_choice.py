"""multiple-choice: columns, features, and a rule that a tiny model learns."""

import functools
import json
from collections.abc import Sequence
from random import Random

import pandas as pd
import pytest
from datasets import Dataset
from json_files import read_lines
from new_tasks import task_of
from trained_runs import read_results

from modeling_mybert import MyBertForMultipleChoice
from mybert import Predictor, cli
from mybert.inference.logits import logits_of
from mybert.rows.splits import Split
from mybert.rows.tables import table_of
from mybert.tasks.lines import RowColumns
from mybert.tasks.reading import read_split
from tokenization import MyBertTokenizer


@pytest.fixture
def swag() -> list[dict]:
    """The right ending is the one with a good word."""
    return [
        {"sent1": "the film", "sent2": "a", "ending0": one, "ending1": other, "label": int(other == good)}
        for good in ("good film", "lovely book", "great song", "fine play")
        for bad in ("bad film", "dull book", "awful song")
        for one, other in ((good, bad), (bad, good))
    ]


task = functools.partial(task_of, "multiple-choice")


def part_of(rows: list[dict], **settings) -> Split:
    """The rows as a file would give them."""
    rows, columns = task(**settings).by_role(table_of(rows), "rows", labelled=True)
    return Split("rows", task().prepare(rows), lambda: (), range(len(rows)), columns=columns)


def references(rows: list[dict], **settings) -> list[int]:
    """The choices that the labels name, if no row has a problem."""
    part = part_of(rows, **settings)
    reader = task(**settings).with_label_reading([part])
    assert not reader.check_rows(part.rows, training=False)
    assert reader.config.finetuned["choice_labels"] == reader.options.choice_labels
    return reader.references(part.rows)


WORDS = ["one word", "two words", "three", "four", "five"]


def arc(names: str, place: int, **form) -> dict:
    """A row of ARC, whose choices have labels; `of` is the form of the choices."""
    texts, names = WORDS[: len(names)], list(names)
    choices = {"text": texts, "label": names}
    of = form.get("of", "columns")
    if of != "columns":
        choices = [{"text": text, "label": name} for text, name in zip(texts, names, strict=True)]
    if of == "stem":
        return {"id": "x", "question": {"stem": "why", "choices": choices}, "answerKey": names[place]}
    return {"id": "x", "question": "why", "choices": choices, "answerKey": names[place]}


def choices_in(prefix: str, places: str, texts: list[str] = WORDS) -> dict:
    return {f"{prefix}{place}": text for place, text in zip(places, texts, strict=False)}


KEYS = {
    "HellaSwag": lambda i: {"ctx_a": "a", "ctx_b": "", "ctx": "a", "endings": WORDS[:4], "label": f"{i}"},
    "SWAG": lambda i: {"sent1": "a", "sent2": "b", **choices_in("ending", "0123"), "label": i},
    "COPA": lambda i: {"premise": "a", "question": "cause", **choices_in("choice", "12"), "label": i},
    "COPA's XML": lambda i: {"premise": "a", **choices_in("choice", "12"), "label": f"{i + 1}"},
    "PIQA": lambda i: {"goal": "a", **choices_in("sol", "12"), "label": i},
    "WinoGrande": lambda i: {"sentence": "a _ b", **choices_in("option", "12"), "answer": f"{i + 1}"},
    "SocialIQA": lambda i: {"context": "a", "question": "b", **choices_in("answer", "ABC"), "label": f"{i + 1}"},
    "CosmosQA": lambda i: {"context": "a", "question": "b", **choices_in("answer", "0123"), "label": i},
    "CommonsenseQA": lambda i: arc("ABCDE", i),
    "CommonsenseQA's JSON": lambda i: arc("ABCDE", i, of="stem"),
    "ARC": lambda i: arc(("ABCD", "1234")[i % 2], i),
    "ARC's JSON": lambda i: arc(("ABCD", "1234")[i % 2], i, of="stem"),
    "ARC, objects": lambda i: arc(("ABCD", "1234")[i % 2], i, of="list"),
    "ARC, bare": lambda i: {"question": "a", "choices": WORDS[:4], "answerKey": ("ABCD"[i], f"{i + 1}")[i % 2]},
    "OpenBookQA": lambda i: {"question_stem": "a", "choices": arc("ABCD", i)["choices"], "answerKey": "ABCD"[i]},
    "RACE": lambda i: {"article": "a", "question": "b", "options": WORDS[:4], "answer": "ABCD"[i]},
    "MMLU": lambda i: {"question": "a", "subject": "s", "choices": WORDS[:4], "answer": i},
    "MMLU's CSV": lambda i: {"question": "a", **choices_in("", "ABCD"), "answer": "ABCD"[i]},
    "ReClor": lambda i: {"context": "a", "question": "b", "answers": WORDS[:4], "label": i},
    "texts": lambda i: {"question": "a", "choices": [*WORDS[i:4], *WORDS[:i]], "answer": WORDS[i]},
    "texts of numbers": lambda i: {"question": "2+2", "choices": (n := ["1", "12", "20", "4"]), "answer": n[i]},
    "choices that are numbers": lambda i: {"question": "a", "choices": ["3", "0", "12", "7"], "answer": i},
    "letters in brackets": lambda i: {"question": "a", "choices": WORDS[:4], "answer": f"({'abcd'[i]})"},
    "names of columns": lambda i: {"sentence": "a", **choices_in("option", "12"), "answer": f"option{i + 1}"},
    "whole floats": lambda i: {"context": "a", **choices_in("option ", "1234"), "label": float(i + 1)},
}


COUNTS = {"COPA": 2, "COPA's XML": 2, "PIQA": 2, "WinoGrande": 2, "names of columns": 2, "SocialIQA": 3}
COUNTS |= {"CommonsenseQA": 5, "CommonsenseQA's JSON": 5}


@pytest.mark.parametrize("form", KEYS)
def test_the_keys_of_known_data_sets_name_the_right_choice(form, write_rows, tmp_path):
    places = [place for place in range(COUNTS.get(form, 4)) for _ in range(2)]
    rows = list(map(KEYS[form], places))
    expected = [0 if form == "texts" else place for place in places]
    assert references(rows) == expected
    files = [write_rows("rows.jsonl", rows), tmp_path / "rows.parquet", tmp_path / "rows.csv"]
    pd.DataFrame(rows).to_parquet(files[1])
    (pd.read_parquet(files[1]) if len(form) % 2 else pd.DataFrame(rows)).to_csv(files[2], index=False)
    for file in files[: 2 if "question" in rows[0] and isinstance(rows[0]["question"], dict) else 3]:
        split = read_split(str(file), task())
        assert task().with_label_reading([split]).references(split.rows) == expected, file.name
    alone = {name: value for name, value in rows[-1].items() if name not in ("answerKey", "label", "answer")}
    read = task().prepare(Dataset.from_list([RowColumns(task()).row(alone)]))  # as `predict` does
    assert read["choices"][0] == part_of(rows).rows["choices"][-1]


@pytest.mark.parametrize("seed", range(4))
def test_keys_name_the_choice_that_they_were_written_for(seed):
    """Letters beside numbers, from 0 or from 1, in the types of JSON; the first and the last choice occur."""
    random = Random(seed)
    count, first = random.randint(2, 6), random.randint(0, 1)
    places = [0, count - 1, *(random.randrange(count) for _ in range(20))]
    forms = [str, int, float, lambda number: f"{number}.", lambda number: "abcdefg"[number - first]]
    written = [random.choice(forms[:4])(place + first) for place in places[:2]]
    written += [random.choice(forms)(place + first) for place in places[2:]]
    rows = [{"question": "a", "options": ["x", "y", "z", "p", "q", "r"][:count], "answer": key} for key in written]
    for row in rows:  # no choice is a letter or a number
        row["options"] = [f"the {text}" for text in row["options"]]
    assert references(rows) == places
    assert references(rows, choice_labels=f"from-{first}") == places


@pytest.mark.parametrize("labelled", [True, False])
def test_choices_whose_labels_do_not_fit_them_are_a_problem_of_the_row(labelled):
    for names, shown in ((["A", "B"], "A, B"), (["A", "B", "B"], "A, B, B"), (["A", None, "C"], "A, , C")):
        row = {"question": "a", "choices": {"text": WORDS[:3], "label": names}} | ({"label": "A"} if labelled else {})
        read = task().prepare(Dataset.from_list([RowColumns(task()).row(row)]))
        (problem,) = task().check_rows(read, training=False)
        assert problem.message.startswith(f"3 choices with the labels {shown}; give each a label of its own")
    whole = {**row, "choices": {"text": WORDS[:3], "label": [None] * 3}}
    assert not task().check_rows(task().prepare(Dataset.from_list([RowColumns(task()).row(whole)])), training=False)


def keys(*labels, names: Sequence[str] = (), count: int = 4) -> list[dict]:
    """Rows with the choices in columns of these names, or in a list."""
    form = dict(zip(names, WORDS, strict=False)) if names else {"choices": WORDS[:count]}
    return [{"question": "a", **form, "label": label} for label in labels]


@pytest.mark.parametrize(
    ("rows", "readings"),
    [
        (keys(1, 2, 3, 3), ("from-0", "from-1")),
        (keys("A", "2"), ("from-0", "from-1")),
        (keys("1", "1", names=("option1", "option2")), ("from-0", "from-1")),
        (keys(0, 1, 2, 4), ("from-0", "from-1")),
        ([{"question": "a", "choices": ["b", "a", "x y"], "label": "a"}], ("texts", "letters")),
    ],
)
def test_an_option_decides_on_keys_with_two_meanings(rows, readings):
    answers = []
    for reading in readings:
        part = part_of(rows)
        reader = task(choice_labels=reading).with_label_reading([part])
        answers.append(reader.references(part.rows))
        assert [place is None for place in answers[-1]] == [
            number in {problem.row for problem in reader.check_rows(part.rows, training=True)}
            for number in range(len(rows))
        ]
    assert answers[0] != answers[1]


def test_names_of_columns_that_count_from_0_decide_and_a_stray_key_is_a_bad_row():
    assert references(keys(1, 2, names=("ending0", "ending1", "ending2", "ending3"))) == [1, 2]
    part = part_of(keys(*[0, 1, 2, 3] * 20, 4))
    reader = task().with_label_reading([part])
    assert [problem.row for problem in reader.check_rows(part.rows, training=True)] == [80]
    part = part_of([arc("ABCD", 2), {**arc("1234", 0), "answerKey": "A"}])
    (problem,) = task().with_label_reading([part]).check_rows(part.rows, training=True)
    assert problem == (1, "the label 'A' is none of the choices (the row has 1, 2, 3, 4)", None)


def test_all_files_decide_together_and_the_checkpoint_stores_it(finetune, write_rows, tmp_path, capsys):
    def rows(*keys):
        return [
            {"sentence": f"the {a} _", "option1": f"good {a}", "option2": f"bad {a}", "answer": key}
            for a, key in zip("abcdefghijkl", keys, strict=False)
        ]

    train, only_1 = write_rows("train.jsonl", rows(*"121112221212")), write_rows("ones.jsonl", rows(*"1111"))
    words = ("--train", only_1, "--validation", train, "--max-steps", 1)
    assert finetune("multiple-choice", *words) == 0
    assert capsys.readouterr().out.startswith("multiple-choice: 2 choices for each context, labels are numbers from 1")
    model = str(tmp_path / "out")
    made = json.loads((tmp_path / "out/validation/results.json").read_text())["metrics"]["accuracy"]
    for data, options, score in ((train, (), made), (only_1, (), None), (only_1, ("--choice-labels", "from-0"), None)):
        folder = tmp_path / f"scores-{data.stem}-{len(options)}"
        assert cli.main(["evaluate", "--model", model, "--data", str(data), "--output", str(folder), *options]) == 0
        lines = read_lines(folder / "predictions.jsonl")
        first = 0 if options else 1
        assert [line["reference"] for line in lines] == [int(line["input"]["answer"]) - first for line in lines]
        assert [line["label"] for line in lines] == [str(line["choice"] + first) for line in lines]
        assert score in (None, json.loads((folder / "results.json").read_text())["metrics"]["accuracy"])
    found = Predictor(model, device="cpu")([{k: v for k, v in row.items() if k != "answer"} for row in rows(*"12")])
    assert [one["label"] for one in found] == [str(one["choice"] + 1) for one in found]


def test_each_choice_is_encoded_after_the_context_and_the_start(tiny_checkpoint, swag):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    part = part_of(swag)
    features = task().with_label_reading([part]).features(part.rows, tokenizer, training=True)
    assert features["input_ids"][1] == [
        tokenizer("the film", f"a {ending}")["input_ids"] for ending in (swag[1]["ending0"], swag[1]["ending1"])
    ]
    assert features["labels"][:] == [row["label"] for row in swag]


@pytest.mark.parametrize(
    ("names", "columns", "expected"),
    [
        (("ctx_a", "ctx_b", "ctx"), [], {"context": "ctx_a", "start": "ctx_b"}),
        (("ctx_b", "ctx"), [], {"context": "ctx"}),
        (("ctx_a", "ctx_b", "ctx"), ["context=ctx"], {"context": "ctx"}),
        (("ctx_a", "ctx_b", "ctx"), ["context=ctx", "start=ctx_b"], {"context": "ctx", "start": "ctx_b"}),
    ],
)
def test_columns_of_hellaswag_are_not_read_twice(names, columns, expected):
    found = task(columns=columns).find_columns([*names, "endings", "label"], "rows", labelled=True)
    assert found == {**expected, "choices": "endings", "label": "label"}


@pytest.mark.slow
def test_a_rule_is_learned_and_predicted_without_labels(finetuned, swag):
    folder = finetuned("multiple-choice", swag, "--num-train-epochs", 5, validation=swag)
    assert read_results(folder)["validation"]["metrics"] == {"accuracy": 1}
    said = Predictor(folder, device="cpu")([{k: v for k, v in row.items() if k != "label"} for row in swag])
    assert [one["choice"] for one in said] == [row["label"] for row in swag]
    assert [one["text"] for one in said] == [row[f"ending{row['label']}"] for row in swag]


@pytest.mark.parametrize("digits", [1, 2])
def test_choices_are_read_from_numbered_columns_of_one_name(digits):
    rows = [{"context": "c", **{f"ending{i:0{digits}}": f"e{i}" for i in range(12)}, "label": 11}]
    assert part_of(rows).rows[0]["choices"] == [f"e{i}" for i in range(12)] and references(rows) == [11]


def test_rows_with_different_numbers_of_choices_are_predicted_as_if_alone(tiny_checkpoint):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    reader = task()
    model = MyBertForMultipleChoice.from_pretrained(tiny_checkpoint).eval()
    rows = Dataset.from_list([{"context": "the film", "choices": ["good", "bad", "dull film"][:n]} for n in (2, 3, 2)])
    assert not reader.check_rows(rows, training=False)
    assert "3 choices, most rows have 2" in str(reader.check_rows(rows, training=True))

    def predictions(some: Dataset) -> list[dict]:
        features = reader.features(some, tokenizer, training=False)
        return reader.decode(logits_of(model, reader, tokenizer, features), features, some)

    together, alone = predictions(rows), [predictions(rows.select([i]))[0] for i in range(3)]
    assert [len(one["scores"]) for one in together] == [2, 3, 2]
    for one, other in zip(together, alone, strict=True):
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-6) and one["choice"] == other["choice"]


def test_the_error_of_a_row_is_what_the_right_choice_lacks():
    predictions = [{"choice": 0, "scores": [0.75, 0.25]}, {"choice": 0, "scores": [0.75, 0.25]}]
    assert task().errors(predictions, [0, 1]) == [0.0, 0.75]
