"""Settings from the command line and YAML files: precedence, conversion, help, and suggestions for mistakes."""

import ast
import runpy
from dataclasses import dataclass, make_dataclass
from pathlib import Path

import numpy as np
import pytest
import transformers
import yaml
from transformers import SchedulerType, TrainingArguments

from mybert.common.errors import UserError
from mybert.common.quantities import Duration
from mybert.settings.calls import make_settings, python_value
from mybert.settings.declare import FOLDER, MODEL, Options, check_effect, setting
from mybert.settings.options import INHERITED, options_of
from mybert.settings.parse import parse_settings


@dataclass
class Example:
    inputs: list[str] = setting(positional=True, default_factory=list, help="files")
    uncased: bool = setting(True, "lower-case", negation="cased")
    vocab_size: int = setting(30000, "pieces")
    rate: float = setting(0.5, "share")
    column: str | None = setting(None, "name")
    case: str = setting("lower", "letters", choices=("lower", "upper"))
    sizes: list[int] = setting(default_factory=list, help="numbers")
    max_samples: int | None = setting(None, "rows")
    cases: list[str] = setting(default_factory=list, help="all letters", choices=("lower", "upper"))


def parse(*argv: str) -> Example:
    return parse_settings([Example], argv, "example")[0]


def test_flags_are_accepted_with_hyphens_and_underscores():
    assert parse("a", "--vocab-size", "7") == parse("a", "--vocab_size", "7") == Example(["a"], vocab_size=7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("inputs: notes.txt\nsizes: 8", "notes.txt --sizes 8"),  # a text is not a list of its characters
        ("inputs: [1, b]\nsizes: ['8', 9]", "1 b --sizes 8 9"),
        ("inputs: [1.10, 1:30, 0x1f]\ncolumn: 007", "1.10 1:30 0x1f --column 007"),
        ("inputs: a\nvocab_size: 010\nrate: 1_0e-4\nuncased: false", "a --vocab-size 010 --rate 1_0e-4 --cased"),
    ],
)
def test_values_in_a_file_are_read_as_on_the_command_line(text, words, tmp_path):
    (tmp_path / "run.yaml").write_text(text)
    assert parse("--config", str(tmp_path / "run.yaml")) == parse(*words.split())


def test_one_text_is_a_text_where_texts_and_lists_are_allowed_as_on_the_command_line(tmp_path):
    """transformers reads optim_target_modules "all-linear" as all, and ["all-linear"] as the name of a module."""
    (tmp_path / "run.yaml").write_text("optim_target_modules: all-linear\n")
    for words in (["--config", str(tmp_path / "run.yaml")], ["--optim-target-modules", "all-linear"]):
        assert parse_settings([TrainingArguments], words, "example")[0].optim_target_modules == "all-linear"
    (tmp_path / "run.yaml").write_text("optim_target_modules: [attn, mlp]\n")
    (found,) = parse_settings([TrainingArguments], ["--config", str(tmp_path / "run.yaml")], "example")
    assert found.optim_target_modules == ["attn", "mlp"]


def test_numbers_in_a_mapping_of_a_file_are_numbers(tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("lr_scheduler_kwargs: {a: 1e-5, b: 010, c: [2.5E3, .5e1, -3], d: '1e-5', e: 1:30, f: {g: 1}}\n")
    (found,) = parse_settings([TrainingArguments], ["--config", str(config)], "example")
    expected = {"a": 1e-5, "b": 10, "c": [2500.0, 5.0, -3], "d": "1e-5", "e": "1:30", "f": {"g": 1}}
    assert found.lr_scheduler_kwargs == expected


def test_a_byte_order_mark_of_a_windows_editor_is_skipped(tmp_path):
    for name, text in (("run.yaml", "inputs: [a]"), ("run.json", '{"inputs": ["a"]}')):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert parse("--config", str(tmp_path / name)) == Example(["a"])


def test_a_switch_takes_true_or_false_but_no_other_word():
    assert parse("--uncased", "a", "b").inputs == ["a", "b"]
    assert parse("--uncased", "true", "a") == parse("--uncased=true", "a") == Example(["a"])
    assert parse("--uncased", "false", "a") == parse("--uncased=False", "a") == Example(["a"], uncased=False)
    assert not parse("--cased", "a").uncased
    assert not parse("--no-uncased", "a").uncased


def test_a_positional_value_may_be_given_by_its_flag():
    assert parse("--inputs", "a", "b", "--cased") == Example(["a", "b"], uncased=False)


@dataclass
class Training(TrainingArguments):
    learning_rate: float = setting(1e-4, "peak")


def test_the_saved_settings_read_back_give_the_same_run(tmp_path):
    config = str(tmp_path / "run.yaml")
    argv = ["a", "b", "--cased", "--sizes", "1", "2", "--bf16", "false", "--lr_scheduler_kwargs", '{"num_cycles": 1}']
    saved, arguments = parse_settings([Example, Training], [*argv, "--save-config", config], "example")
    assert saved == Example(["a", "b"], uncased=False, sizes=[1, 2])
    text = (tmp_path / "run.yaml").read_text()
    assert "learning_rate: 0.0001\n" in text and "adam_beta1" not in text
    read, again = parse_settings([Example, Training], ["--config", config], "example")
    assert (read, again.to_dict()) == (saved, arguments.to_dict())


def test_the_help_shows_groups_choices_defaults_and_examples(capsys):
    with pytest.raises(SystemExit):
        parse_settings([Example], ["--help"], "example", "Does it.", ["example a", "example b"])
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("usage: example INPUT ... [options] Does it. required:")
    for part in (
        "--case {lower,upper} Letters.",
        "--cases {lower,upper} ... All letters.",
        "Pieces. (default: 30000)",
        "examples: example a example b",
        "--[no-]uncased lower-case. (default: True)",
    ):
        assert part in shown, shown


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("inputs: [x, y]\nvocab-size: 9\nrate: 1e-3\nuncased: false\n")
    found = parse("--config", str(config), "--vocab-size", "8")
    assert found == Example(["x", "y"], uncased=False, vocab_size=8, rate=0.001)


def test_settings_are_read_from_json_and_by_python_calls(tmp_path):
    config = tmp_path / "run.json"
    config.write_text('{\n\t"inputs": ["ä\\ud83d\\ude00"],\n\t"rate": 1e-3,\n\t"uncased": false\n}')
    expected = Example(["ä😀"], uncased=False, rate=0.001, vocab_size=7)
    assert parse("--config", str(config), "--vocab-size", "7") == expected
    assert make_settings([Example], (), {"config": config, "vocab_size": 7}) == (expected,)
    assert make_settings([Example], (["b"],), {"config": config})[0].inputs == ["b"]
    for text, message in (("[1]", "expected an object"), ('{"rate": 1, "rate": 2}', "'rate' is given twice")):
        config.write_text(text)
        with pytest.raises(UserError, match=f"run.json: {message}"):
            parse("--config", str(config))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("fsdp", True, True), ("lr_scheduler_type", SchedulerType.COSINE, SchedulerType.COSINE), ("tf32", None, None),
     ("run_name", Path("a"), "a"), ("report_to", ["wandb"], ["wandb"]), ("optim_args", None, None),
     ("weight_decay", 1, 1.0), ("lr_scheduler_kwargs", {"a": 1}, {"a": 1})],
)  # fmt: skip
def test_options_of_transformers_take_what_transformers_takes(name, value, expected):
    assert python_value(value, options_of([TrainingArguments])[name]) == expected


@pytest.mark.parametrize(("name", "value"), [("max_steps", "1"), ("weight_decay", "0.1"), ("use_cpu", "yes")])
def test_numbers_and_switches_of_transformers_are_checked(name, value):
    with pytest.raises(UserError, match=f"{name}: expected .*, found '{value}'"):
        python_value(value, options_of([TrainingArguments])[name])


@dataclass
class Call(Example):
    weights: list[float] | None = setting(None, "numbers")
    time: Duration | None = setting(None, "time")
    words: int | str | None = setting(None, "a number or a name")
    options: dict | str | None = setting(None, "any")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("vocab_size", np.int32(7), 7),
        ("rate", 1, 1.0),
        ("rate", np.float32(0.25), 0.25),
        ("uncased", np.bool_(False), False),
        ("column", Path("a") / "b", str(Path("a") / "b")),
        ("column", None, None),
        ("inputs", Path("a"), ["a"]),
        ("inputs", ("a", Path("b")), ["a", "b"]),
        ("inputs", (name for name in "ab"), ["a", "b"]),
        ("sizes", 3, [3]),
        ("sizes", range(2), [0, 1]),
        ("sizes", np.array([1, 2]), [1, 2]),
        ("weights", [1, 0.5], [1.0, 0.5]),
        ("time", "2h", "2h"),
        ("time", 90, 90.0),
        ("words", 5, 5),
        ("words", "auto", "auto"),
        ("options", {"a": [1]}, {"a": [1]}),
    ],
)
def test_an_argument_of_a_python_call_becomes_the_type_of_its_setting(name, value, expected):
    (made,) = make_settings([Call], (["x"],), {name: value})
    found = getattr(made, name)
    assert found == expected and type(found) is type(expected)
    if isinstance(expected, list):
        assert [type(item) for item in found] == [type(item) for item in expected]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("vocab_size", "64", "a whole number"),
        ("vocab_size", 1.5, "a whole number"),
        ("vocab_size", True, "a whole number"),
        ("vocab_size", None, "a whole number"),
        ("max_samples", [1], "a whole number or None"),
        ("rate", "0.5", "a number"),
        ("rate", False, "a number"),
        ("uncased", "no", "True or False"),
        ("uncased", 1, "True or False"),
        ("column", ["a", "b"], "a text or None"),
        ("column", b"a", "a text or None"),
        ("case", 3, "lower or upper"),
        ("inputs", 3, "a text or a list of those"),
        ("inputs", ["a", 3], "a text or a list of those"),
        ("inputs", {"a": "b"}, "a text or a list of those"),
        ("sizes", [1, 2.5], "a whole number or a list of those"),
        ("sizes", "12", "a whole number or a list of those"),
        ("time", [1], "a text or a number or None"),
        ("words", 1.5, "a text or a whole number or None"),
        ("config", 3, "a file name"),
    ],
)
def test_an_argument_of_a_wrong_type_names_itself_what_is_expected_and_its_value(name, value, expected):
    with pytest.raises(UserError) as raised:
        make_settings([Call], (), {"inputs": ["x"]} | {name: value})
    assert str(raised.value) == f"{name}: expected {expected}, found {value!r}"


def test_the_keywords_of_the_functions_are_those_of_the_settings():
    written = runpy.run_path(str(Path(__file__).with_name("keyword_types.py")))
    found = written["TARGET"].read_text(encoding="utf-8")
    if transformers.__version__ not in found:
        pytest.skip("TrainingArguments may differ in another version of transformers")
    message = "run `make generated`"
    assert INHERITED.read_text(encoding="utf-8") == written["training_arguments"](), message
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(written["keywords"]())), message


@dataclass
class Budget(Example):
    time_budget: str | None = setting(None, "time", decides=True)


def test_defaults_are_saved_unless_a_time_budget_chooses_values(tmp_path):
    for name in ("run.yaml", "run.json"):
        config = tmp_path / name
        parse_settings([Budget], ["a", "--save-config", str(config)], "example")
        assert yaml.safe_load(config.read_text())["vocab_size"] == 30000
        parse_settings([Budget], ["a", "--time-budget", "1h", "--save-config", str(config)], "example")
        assert yaml.safe_load(config.read_text()) == {"inputs": ["a"], "time_budget": "1h"}


@dataclass
class Stage:
    output: str = setting("out", "folder", writes=FOLDER)
    overwrite: bool = setting(False, "replace it")


def test_a_missing_settings_file_is_named_with_a_similar_one(tmp_path):
    (tmp_path / "recipe.yaml").write_text("output: out\n")
    with pytest.raises(UserError) as raised:
        parse_settings([Stage], ["--config", str(tmp_path / "recipes.yaml")], "example")
    wrong, similar = tmp_path / "recipes.yaml", tmp_path / "recipe.yaml"
    assert str(raised.value) == f"--config {wrong} does not exist; did you mean {similar}?"


def test_a_settings_file_inside_an_overwritten_output_is_refused(tmp_path):
    config, output = tmp_path / "out" / "run.yaml", str(tmp_path / "out")
    config.parent.mkdir()
    config.write_text(f"output: {output}\noverwrite: true\n")
    with pytest.raises(UserError, match=f"--config {config} lies in the output {output}, which --overwrite replaces"):
        parse_settings([Stage], ["--config", str(config)], "example")
    (kept,) = parse_settings([Stage], ["--config", str(config), "--no-overwrite"], "example")
    assert kept == Stage(output)
    (kept,) = parse_settings([Stage], ["--config", str(config), "--output", f"{output}put"], "example")
    assert kept.overwrite


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["a", "--vocab-sise", "7"], "unknown argument '--vocab-sise'; did you mean '--vocab-size'"),
        (["a", "--vocab_sise=7"], "unknown argument '--vocab_sise=7'; did you mean '--vocab-size'"),
        (["a", "--document-per-file"], "unknown argument '--document-per-file'$"),
        (
            ["a", "--vocab-size", "300", "400"],
            "unknown argument '400'; --vocab-size takes one value; if it is one of INPUT, write them all in one place",
        ),
        (["a", "--cased", "b"], "unknown argument 'b'; if it is one of INPUT, write them all in one place"),
        (["a", "--input", "b"], "unknown argument '--input'; did you mean '--inputs'"),
        (["a", "--vocab-size", "seven"], "invalid int value: 'seven'"),
        (["a", "--case", "mixed"], "--case: expected lower or upper, found 'mixed'"),
        (["--vocab-size", "7"], "the following arguments are required: INPUT"),
        (["a", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["a", "--config", ""], "--config : "),
        (["a", "--config"], "--config: expected one argument"),
        (["a", "--save-config", ""], "--save-config: expected a file name with .yaml, .yml or .json, found ''"),
        (["a", "--save-config", "a.txt"], "--save-config: expected a file name with .yaml, .yml or .json"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_with_a_suggestion(argv, message):
    with pytest.raises(UserError, match=message) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)


def test_a_file_may_hold_null_for_unset_options_and_mappings_for_training_arguments(tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("column:\nreport_to: [none]\nlr_scheduler_kwargs: {num_cycles: 1}\nsave_total_limit:\n")
    example, arguments = parse_settings([Example, TrainingArguments], ["a", "--config", str(config)], "example")
    assert example.column is None
    assert (arguments.report_to, arguments.lr_scheduler_kwargs) == ([], {"num_cycles": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: 1\nvocab_sise: 7", "run.yaml:2: unknown setting 'vocab_sise'; did you mean 'vocab_size'"),
        ("rate: 1\n\nrate: 2", "run.yaml:3: rate is given twice"),
        ("vocab-size: 7\nvocab_size: 8", "run.yaml:2: vocab_size is given twice"),
        ("case: mixed", "run.yaml:1: case: expected lower or upper, found 'mixed'"),
        ("- a", "found list"),
        ("a: [", "run.yaml"),
        ("vocab_size: seven", "vocab_size: expected a whole number, found 'seven'"),
        ("vocab_size: [7]", r"run.yaml:1: vocab_size: expected a whole number, found \['7'\]"),
        ("vocab_size: 8.0", "vocab_size: expected a whole number, found '8.0'"),
        ("vocab_size: 1:30", "vocab_size: expected a whole number, found '1:30'"),
        ("vocab_size: 0x40", "vocab_size: expected a whole number, found '0x40'"),
        ("vocab_size: true", "vocab_size: expected a whole number, found True"),
        ("vocab_size:", "vocab_size: expected a whole number, found None"),
        ("inputs:", "inputs: expected text, in quotes if necessary, found None"),
        ("uncased: 'no'", "uncased: expected true or false, found 'no'"),
        ("column: [a, b]", "column: expected text"),
        ("column: yes", "column: expected text, in quotes if necessary, found True"),
        ("column: 2020-01-01", "column: expected text, in quotes"),
        ("case: no", "case: expected lower or upper, in quotes, found False"),
        ("inputs: [a, [b]]", "inputs: expected text"),
        ("inputs: [a, true]", "inputs: expected text, in quotes"),
        ("sizes: [1, two]", "sizes: expected a whole number"),
    ],
)
def test_a_mistake_in_a_file_names_the_file_and_the_setting(tmp_path, text, message):
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        parse("a", "--config", str(tmp_path / "run.yaml"))
    assert str(caught.value).count("run.yaml") == 1


def limited(interval: str) -> type:
    """A settings class with a number and a list of numbers in the interval."""
    number, numbers = setting(None, within=interval), setting(default_factory=list, within=interval)
    kinds = [("number", float | None, number), ("numbers", list[float], numbers)]
    return make_dataclass("Limited", kinds, bases=(Options,), kw_only=True)


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "expected"),
    [
        ("[1, inf)", [1, 2.5, 1e9], [0.9, -1, float("nan")], "1 or more"),
        ("(0, inf)", [1e-9, 3], [0, -1, float("inf"), float("nan")], "above 0"),
        ("[0, 0.9]", [0, 0.5, 0.9], [-0.1, 0.91], "0 to 0.9"),
        ("[0, 1)", [0, 0.99], [1, -1], "0 or more and below 1"),
        ("(0, 1]", [0.01, 1], [0, 1.01], "above 0 and at most 1"),
        ("(0, 1)", [0.01, 0.99], [0, 1], "between 0 and 1"),
    ],
)
def test_a_number_outside_its_interval_is_refused_in_words(interval, inside, outside, expected):
    kind = limited(interval)
    for value in inside:
        assert (kind(number=value).number, kind(numbers=[1, value][-1:]).numbers) == (value, [value])
    for value in outside:
        for name, given in (("number", value), ("numbers", [value])):
            with pytest.raises(UserError) as raised:
                kind(**{name: given})
            assert str(raised.value) == f"--{name}: expected {expected}, found {given}"
    with pytest.raises(UserError, match="--number: expected"):
        kind(number=float("nan"))


@dataclass(kw_only=True)
class Declared(Options):
    model: str = setting("", reads=MODEL)
    words: list[str] = setting(default_factory=list)
    case: str | None = setting(None, choices=("lower", "upper"))
    cases: list[str] = setting(default_factory=list, choices=("lower", "upper"))
    way: str = setting("lower", choices=("lower", "upper"))


def test_a_single_value_of_a_list_becomes_a_list_and_paths_become_texts():
    assert Declared(model="m", words="ab").words == ["ab"]
    assert Declared(model="m", words=(Path("a"), "b")).words == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": ""}, "--model: expected a folder or Hub name, found ''"),
        ({"case": "uper"}, "--case: expected lower or upper, found 'uper'; did you mean 'upper'?"),
        ({"cases": ["lower", "x"]}, "--cases: expected lower or upper, found ['lower', 'x']"),
        ({"way": None}, "--way: expected lower or upper, found None"),
    ],
)
def test_a_value_that_its_declaration_does_not_allow_is_refused(given, message):
    assert Declared(model="m", case=None, cases=["upper"]).case is None
    with pytest.raises(UserError) as raised:
        Declared(**{"model": "m"} | given)
    assert str(raised.value) == message


def test_a_given_setting_without_effect_is_named():
    given = Declared(model="m", words=["a"], way="upper")
    check_effect(given, "words way", True, "without --cases")
    check_effect(given, "case cases", False, "without --cases")
    for names, message in (("case words", "--words has"), ("way", "--way has")):
        with pytest.raises(UserError, match=f"{message} no effect without --cases"):
            check_effect(given, names, False, "without --cases")
