"""Messages of every command and function: wrong names, missing inputs, existing outputs, and wrong arguments."""

import shlex
import subprocess
import sys

import pandas as pd
import pytest
from datasets import Dataset

import mybert
from mybert import UserError

NOT_UTF8 = "a\\udcff' has bytes that are not UTF-8; rename the file or folder, or correct the text"
NAMES = [  # " … " in a message stands for anything
    ("pretrain --learning-rat 1", "unknown argument '--learning-rat'; did you mean '--learning-rate'?"),
    ("pretrain --device cpu", "did you mean '--use-cpu'?"),
    ("adapt --model m --dry-run", "unknown argument '--dry-run'"),
    ("pretrain --lr", "did you mean '--learning-rate'?"),
    ("pretrain --batch_size=8", "did you mean '--per-device-train-batch-size'?"),
    ("pretrain --size mina", "--size: expected tiny or mini or … found 'mina'; did you mean 'mini'?"),
    ("finetune --task regression --model m --train t", "use --task text-classification --problem regression"),
    ("finetune --task sentimant --model m --train t", "or qa or squad or swag, found 'sentimant'; did you mean"),
    ("finetune --max_seq_length 128", "did you mean '--max-length'?"),
    ("pretrain --epochs", "did you mean '--num-train-epochs'?"),
    ("evaluate --test t.csv", "did you mean '--data'?"),  # other options are missing
    ("predict model rows.csv --batch-size 8", "did you mean '--max-tokens-per-batch'?"),
    ("doctor modle", "modle is not a folder; name the output folder of a stage; did you mean model?"),
    ("adapt --text t.txt", "did you mean '--inputs'?"),
    ("tokenizer corups.txt", "or - for texts on standard input); did you mean corpus.txt?"),
    ("push modle --repo-id me/m", "name the folder of a trained model; did you mean model?"),
    *(
        (words, f"--{option}: expected {expected}, found ")
        for expected, words, option in (
            ("names that are not empty", 'tokenizer ""', "inputs"),
            ("names that are not empty", 'index model ""', "inputs"),
            ("a name", 'search "" cat', "vectors"),
            ("names that are not empty", 'predict model ""', "inputs"),
            ("names that are not empty", 'suggest model corpus.txt --labelled ""', "labelled"),
            ("names that are not empty", 'finetune --task ner --model model --train ""', "train"),
            ("names that are not empty", 'pretrain --text ""', "text"),
            ("a name", 'serve ""', "model"),
            ("a name", 'push "" --repo-id me/m', "model"),
            ("a name", 'doctor ""', "folder"),
        )
    ),
    ("demo model model/", "--models: expected each checkpoint once"),
    ("adapt corpus.txt --model m --words model", "--words model is a folder; name a file with one word per line"),
    ("plan --config model", "--config model: a folder; name a file of settings in YAML or JSON"),
    ("plan --config latin.yaml", "--config latin.yaml: not UTF-8; save the file as UTF-8"),
    ("quickstart --language klingon", "--language: expected an ISO 639 code"),
    ("quickstart --text -", "--text: expected files: standard input can be read only once"),
    *((f"{words}a\udcff", NOT_UTF8) for words in ("predict ", "search index ", "search index --output=")),
]


@pytest.mark.parametrize(("words", "message"), NAMES, ids=[ascii(words) for words, _ in NAMES])
def test_a_mistake_is_one_line_with_the_nearest_name(assert_refused, tmp_path, words, message):
    (tmp_path / "model").mkdir()
    (tmp_path / "corpus.txt").touch()
    (tmp_path / "latin.yaml").write_bytes(b"size: \xe9")
    given = shlex.split(words)
    corpus = ["--corpus", "nowhere"] if given[0] == "pretrain" else []
    output = [] if given[0] in ("push", "doctor", "serve", "demo") else ["--output", "o"]
    assert_refused([*given, *corpus, *output], message)


MISSING = """
predict {model} nofile.csv
predict {model} nofile.txt --device cpu
predict ./nofolder have.csv
explain {model} nofile.csv --output o.html
embed {model} nofile.txt --output o.npy
embed {model} have.txt --output have.txt/o.npy
search nofile.npy query
search done query
search {model} query
score {model} nofile.txt --output o.jsonl
finetune --task ner --model {model} --train nofile.conll --output o
finetune --task sentiment --model owner/name --train nofile.csv --output o --max-steps 3
finetune --task sentiment --model {model} --train have.csv --output done
evaluate --model {model} --data nofile.csv --output o
evaluate --model {model} --data have.csv --output have.csv
pretrain --text nofile.txt --output o --max-steps 3
pretrain --corpus nofolder --output o
tokenizer no-match-*.txt --output o
tokenizer have.txt --output done
corpus have.txt --tokenizer ./nofolder --output o
corpus have.txt --tokenizer done --output o
adapt --model {model} nofile.txt --output o
adapt --model {model} have.txt --words nofile.txt --output o
trim --model {model} --task-data nofile.csv --output o
distill --teacher ./nofolder --corpus done --output o
demo ./nofolder
serve ./nofolder
export ./nofolder --output o
merge {model} ./nofolder --output o
quantize {model} --texts nofile.txt --output o
push ./nofolder --repo-id a/b
quickstart --output done
quickstart --text nofile.txt
pretrain --corpus done --output o --max-length 3
finetune --task text-classification --model {model} --train have.csv --output o --learning-rate -1
finetune --task text-classification --model {model} --train have.csv --output o --fp16 --bf16
finetune --task text-classification --model {model} --train have.csv --output o --save-strategy steps
finetune --task text-classification --model {model} --train have.csv --output o --push-to-hub
pretrain --corpus done --output o --adam-beta1 1.5
pretrain --corpus done --output o --warmup-steps -1
pretrain --corpus done --output o --label-smoothing-factor 0.1
adapt have.txt --model {model} --output o --max-grad-norm -1
pretrain --corpus done --output o --report-to nonsense
finetune --task text-classification --model {model} --train have.csv --output o --report-to none nonsense
"""
_NAMED = (
    *("no-match", "nofile", "nofolder", "done", "have", "--max-length", "learning_rate", "--bf16 and --fp16"),
    *("--save-strategy", "push_to_hub", "adam_beta1", "warmup_steps", "label_smoothing_factor", "max_grad_norm"),
    *("--report-to: expected", "is no index"),
)


def test_every_command_names_a_missing_input_or_an_existing_output_before_large_imports(models, tmp_path):
    for name in ("have.txt", "have.csv", "done/manifest.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    commands = [line.split() for line in MISSING.format(model=models("classifier")).strip().splitlines()]
    script = f"""
import sys
from mybert import cli
for command in {commands!r}:
    print(cli.main(command), *{{"torch", "transformers", "datasets", "pandas", "pyarrow"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    errors = done.stderr.splitlines()
    assert done.stdout.splitlines() == ["2"] * len(commands), errors
    for command, error in zip(commands, errors, strict=True):
        assert error.startswith(f"mybert {command[0]}: error: "), command
        assert any(name in error for name in _NAMED), error


MISTAKES = [
    (lambda: mybert.evaluate(model="m", data=pd.DataFrame({"text": []}), output="o"), "data: found no rows"),
    (lambda: mybert.evaluate(model="m", data=[{"text": "a"}, "b"], output="o"), "data: the rows cannot be read"),
    (lambda: mybert.evaluate(model="m", data=[{1: "a"}], output="o"), "data: the rows cannot be read as a table"),
    (
        lambda: mybert.evaluate(model="m", data=pd.DataFrame([["a", "b"]], columns=["text", "text"]), output="o"),
        "data: the rows cannot .*Duplicate column names",
    ),
    (
        lambda: mybert.evaluate(model="m", data=Dataset.from_list([{"text": "a"}]).to_iterable_dataset(), output="o"),
        "data: expected the name of a file, found a IterableDataset",
    ),
    (lambda: mybert.pretrain(corpus="c", output="o", lerning_rate=1), "did you mean 'learning_rate'"),
    (lambda: mybert.pretrain(corpus="c", output="o", epochs=1), "'epochs'; did you mean 'num_train_epochs'"),
    (lambda: mybert.evaluate(model="m", data="d"), "missing arguments: output"),
    (lambda: mybert.finetune(task="text-classification"), "missing arguments: model, output"),
    (lambda: mybert.Predictor("m", max_lenght=5), "'max_lenght'; did you mean 'max_length'"),
    (lambda: mybert.pretrain(corpus="c", output="o", num_train_epochs=-1), "num_train_epochs: expected above 0"),
    (lambda: mybert.score("m", "t", output="o", pairs=["a", "b"]), r"pairs: expected a text or None, found \['a'"),
    (lambda: mybert.evaluate(model="m", data="d", output="o", max_length="4"), "max_length: expected a whole nu"),
    (lambda: mybert.pretrain(corpus="c", output="o", max_steps=1.5), "max_steps: .* number, found 1.5"),
    (lambda: mybert.Embedder("m", layers=[0.5]), r"layers: expected a whole number or .*, found \[0.5\]"),
    (lambda: mybert.Scorer("m", max_lenght=5), "'max_lenght'; did you mean 'max_length'"),
    (lambda: mybert.Predictor(5), "model: expected a text, found 5"),
    (lambda: mybert.export("nowhere/at/all", output="o"), "nowhere/at/all"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_a_wrong_argument_is_a_user_error_with_the_remedy(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").mkdir()
    with pytest.raises(UserError, match=message):
        call()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
