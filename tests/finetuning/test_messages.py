"""Messages of `mybert finetune`: for each bad row, file and setting, what its one line must say.

" … " in a message stands for anything.
"""

import shutil

import pytest
from json_files import write_files

from tokenization import MyBertTokenizer

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
        (ANSWER, {"question": "the " * 29}, "the question has 29 tokens and leaves no"),
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
OPINIONS = [
    {"text": f"a {label} {noun} {number}", "label": label}
    for number in range(12)
    for noun in ("film", "book")
    for label in ("good", "bad")
]
LOOKED_FOR = "text, sentence1, premise, question1, question, sentence, review, document, content, body, tweet, data"
NUMBERS = "text,label\n" + "".join(f"a,{i / 2}\n" for i in range(1, 19))
NO_NUMBERS = "line 20: the label 'high' is not a number; line 21: the label '2,5' is not a number (write 2.5)"
FLAGS, BODY = "text,a,b\nx,0,1\ny,1,0\nz,2,0\n", "body,a\nx,y\n"
STUDIO = {"data": {"text": "a film"}, "predictions": [{"result": [{"type": "choices", "value": {"choices": ["x"]}}]}]}
ARGILLA = {"fields": {"text": "a film"}, "suggestions": {"label": {"value": "x"}}, "responses": {}}
VECTORS = [[True, False], [1, 0], [0.9, 0.1], "[ True False]"]
FRACTIONS = [1.5] + [1, 2] * 20
NO_LABEL = "3 of 3 rows cannot be used: rows 1, 2, 3: the label is missing"
NO_COLUMNS = (
    "--columns txt=body: text-classification has the columns text, text_pair, label; train.csv has no column 'title' "
    "and no column 'b' and no column 'c'; there are body, a"
)
FOLDS = "25 folds need as many rows with different texts, and the 26 training rows have 24; choose fewer"
CONLL, NAMED = {"a.conll": "a b c d\ne f g h\n\n"}, {"a.conll": "word pos ner\nAnn NNP O\n\n"}
NESTED = "# of\n1\tDie\tO\tO\n2\tFC\tB-ORG\tO\n\n"  # GermEval's files
STRAY = {"a.tsv": NESTED * 9 + NESTED.replace("B-", "B_") + NESTED * 9}
NO_NUMBER = "train.json, article 1, paragraph 1, question 1: expected an object with … 'answer_start', a whole number"
BOB = ANSWER | {"answers": {"text": ["Bob", "Bob"], "answer_start": [0, 0]}}
TWO_COLUMNS = [{"question": "a", "option1": "b", "option2": "c", "label": "1"}] * 2
SEVERAL_NAMES = dict.fromkeys(("context", "ending0", "ending1", "option_0", "option_1"), "a")


def labels(*values) -> list[dict]:
    return [{"text": f"text {number}", "label": value} for number, value in enumerate(values)]


def keys(*values, choices=("one word", "two words", "three", "four")) -> list[dict]:
    return [{"question": "a", "choices": [*choices], "label": value} for value in values]


def squad(question: dict, context: str = "the good film") -> dict:
    return {"train.json": {"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}}


def answer(start) -> dict:
    return squad({"question": "who", "answers": [{"text": "f", "answer_start": start}]})


FILES = {  # of a task: lines of JSON, text of a CSV file or a file of another name; options, and message
    "text-classification": [
        ([], "", "train.jsonl is empty"),
        ("text,label\n ,a\n", "", "train.csv … are file and columns right?"),
        ("words,opinion\na,good\n", "", f"train.csv has no column for 'text' (looked for {LOOKED_FOR})"),
        ("text,opinion\na,good\n", "", "train.csv … name it by --columns label=COLUMN"),
        (f'{NUMBERS}a,high\na,"2,5"\n', "", f"train.csv … {NO_NUMBERS}"),
        (labels("good", "good"), "", "rows have only the label ['good']; a classifier needs"),
        (labels([], []), "", "the training rows have no labels"),
        *((labels(v, v), "", "vectors of numbers or truth values, … --columns label=a,b,c") for v in VECTORS),
        (labels("good", "bad", "ok"), "--label-names ok=good", "'good'"),
        *(
            (labels(*few), "", "1 of 41 labels … 1.5 … --problem regression or --problem single-label")
            for few in (FRACTIONS, map(str, FRACTIONS))
        ),
        (FLAGS, "--columns label=a,b", "train.csv … line 4: expected 0 or 1 in the label column 'a', found '2'"),
        (FLAGS, "--columns label=a,c", "train.csv has no column 'c'"),
        (BODY, "--columns text=a text=b", "error: --columns text=a text=b: a name before = is given twice"),
        (BODY, "--columns text=a label=a", "error: --columns names 'a' twice"),
        (BODY, "--columns txt=body text=title label=a,b,c", NO_COLUMNS),
        (BODY, "--train train.csv train.csv", "--train: expected one or several files, each once"),
        ({"train.json": [STUDIO] * 3}, "", NO_LABEL),
        ({"train.json": [ARGILLA] * 3}, "", NO_LABEL),
        (OPINIONS[:24] + OPINIONS[:2], "--folds 25", FOLDS),
    ],
    "token-classification": [
        ({"a.tsv": "1\tAnn\n2\tsings\n\n1\tBo\n"}, "", "a.tsv has no column for 'tags'"),
        ({"a.tsv": "id\tword\n1\tAnn\n2\tsings\n1\tBo\n"}, "", "a.tsv has no column for 'tags'"),
        *(("id,what,tag\n1,Ann,B-PER\n".replace(",", by), "", "train.csv … --columns") for by in ",;|"),
        (CONLL, "--columns word=2 tag=7", "tags=7: … has no such column; there are columns 1 to 4"),
        (CONLL, "--columns word=0", "--columns tokens=0: … there are columns 1 to 4"),
        (CONLL, "--columns word=form tag=ner", "tokens=form: … there are columns 1 to 4, without names"),
        (CONLL, "--columns word=2 tag=2", "--columns names the column 2 of … twice"),
        (NAMED, "--columns tag=chunk", "tags=chunk: … has no such column; there are word, pos, ner"),
        ({"a.conll": "a b c d\ne f\n"}, "--columns tag=3", "line 2: expected 4 columns as in the first line, found 2"),
        (STRAY, "", "line 39: token 2 ('FC'): the tag 'B_ORG' … write B-ORG"),
    ],
    "question-answering": [
        (squad({"id": "1"}), "", "question 1: expected an object with 'question', a text"),
        (squad({"question": "who", "answers": "film"}), "", "object with 'answers', a list"),
        *((answer(start), "", NO_NUMBER) for start in (None, "9", 10**20)),
        (squad({"question": "who"}, "a \ud83d film"), "", "half a surrogate pair"),
        ({"train.json": {"data": []}}, "", "train.json holds no questions"),
        ([BOB] * 2, "", "2 of 2 lines cannot be used: lines 1, 2: the answer 'Bob'"),
        ([ANSWER] * 2, "--max-length 16 --stride 12", "--stride 12: expected less than the 12 tokens of a window"),
    ],
    "multiple-choice": [
        ([SEVERAL_NAMES], "", "train.jsonl: columns of choices have several names (ending0, option_0, …)"),
        (
            keys(0, 1),
            "--suspects argilla",
            "annotation tools label texts, and these rows have choices; use jsonl or csv",
        ),
    ],
}
TWO_MEANINGS = [  # rows of multiple choice, message, and two values of --choice-labels
    (keys(1, 2, 3, 3), "line 1: the label '1' is a number, and no label is 0 … 1, 2, 3", "from-0", "from-1"),
    (keys("A", "2"), "line 2: the label '2' is a number", "from-0", "from-1"),
    (TWO_COLUMNS, "line 1: the label '1'", "from-0", "from-1"),
    (keys(0, 1, 2, 4), "line 1: the label '0' is 0, and '4' (train.jsonl, line 4) is", "from-0", "from-1"),
    (
        keys("a", choices=("b", "a", "x y")),
        "the label 'a' is the text of one choice and the place of another one",
        *("texts", "letters"),
    ),
]
FILES["multiple-choice"] += [
    (rows, "", f"{message} … --choice-labels {one} … or --choice-labels {other} (")
    for rows, message, one, other in TWO_MEANINGS
]
NO_LABELS = [{"text": "a film", "label": None}]
IN_CELLS = [{"text": f"a long film {number}", "label": "bad;good"} for number in range(3)]
IN_LISTS = [{"text": f"a {number}", "label": ["bad", "good"][: 1 + number % 2]} for number in range(3)]
FIVE = "5 of 53 lines cannot be used: lines 49, 50, 51, 52 of a.jsonl, 1 of b.jsonl: the label is missing"
MOVED = (
    "line 2: the label 'fine' is not among the 2 trained on (bad, good); correct them, or move a row of each label "
    "that the training rows lack into a file of --train, or leave them out by --errors skip"
)
CELLS = "correct them, or read several labels in a cell by --label-separator ';', if 'bad;good' is several"
ONE_EXPECTED = "1 of 51 lines cannot be used: line 2 of b.jsonl: 2 labels, ['bad', 'good'], where one is expected"
TAGGED = [{"tokens": ["the", "film"], "tags": ["O", "B-X"]}] * 12
OTHER_NAMES = [{**row, "label": row["label"] + "x"} for row in OPINIONS]
LISTS = [{**row, "label": [row["label"]]} for row in OPINIONS]
PAIRS = [PAIR, PAIR | {"label": "no"}] * 9
MISSPELT, USUAL = (
    {"premise": "a", "hypotesis": "b", "label": "no"},
    {"sentence1": "a", "sentence2": "b", "label": "no"},
)
BOTH = {"text": "a fine film", "label": "good;bad"}
TOGETHER = [  # rows of a.jsonl, and of b.jsonl, options, and message
    ([OPINIONS + NO_LABELS * 4, NO_LABELS], "b.jsonl", FIVE),
    ([OPINIONS, [TEXT, {"text": "book", "label": "fine"}]], "--test b.jsonl", MOVED),
    ([OPINIONS, [TEXT, *NO_LABELS]], "--test b.jsonl", "the label is missing; correct them, or leave them out by"),
    ([OPINIONS + IN_CELLS, [TEXT, BOTH]], "--test b.jsonl", CELLS),
    ([LISTS, [TEXT]], "--test b.jsonl", "for one label a text, add --problem single-label"),
    ([OPINIONS, [USUAL]], "b.jsonl", "b.jsonl has label, text, text_pair"),
    ([OPINIONS, IN_LISTS], "b.jsonl", f"{ONE_EXPECTED}; --problem"),
    ([OPINIONS, IN_LISTS], "b.jsonl --problem single-label", f"{ONE_EXPECTED}; correct"),
    ([PAIRS, [MISSPELT]], "--validation b.jsonl", "b.jsonl has no column for 'text_pair'"),
    ([PAIRS], "--suspects doccano", "doccano shows one text, and these rows are pairs; use label-studio"),
    # teachers
    ([OPINIONS], "--teacher other", "has another vocabulary than --model"),
    ([OTHER_NAMES], "--teacher classifier", "does not know the label"),
    ([TAGGED], "--task ner --teacher classifier", "was fine-tuned for text-classification, not for token"),
    ([OPINIONS], "--teacher classifier --soft-share 0", "--soft-share: expected"),
]
SETTINGS = [
    ("--metric bleu", "--metric bleu: expected one of accuracy, f1_macro"),
    ("--max-length 999", "--max-length 999: "),
    ("--model nowhere", "nowhere: no such folder"),
    ("--validation nowhere.jsonl", "nowhere.jsonl: there is no such file"),
    ("--columns body=text", "--columns body=text: text-classification has the columns text"),
    ("--columns text=body", "has no column 'body'; there are text, label"),
    ("--sweep paper --learning-rate 1", "--learning-rate is chosen by the sweep; leave it or --sweep out"),
    ("--patience 2 --eval-strategy no --save-strategy no", "leave it or --eval-strategy no out"),
    ("--problem single-label --label-separator ;", "--label-separator has no effect with --problem single-label"),
    ("--n-best 3", "--n-best has no effect on text-classification; leave it out"),
    ("--stride 4", "--stride has no effect without --long-texts window; add that, or leave it out"),
    ("--label-smoothing-factor 0.1 --class-weights", "has no effect with --class-weights; leave it out"),
    ("--slices plase", "--slices plase: "),
    ("--label-names 2=other", "--label-names 2=other"),
    ("--unlabelled rows.jsonl", "no effect without --teacher"),
    ("--temperature 3", "no effect without --teacher"),
    ("--folds 3", "--folds"),
    ("--folds 3 --seeds 2", "--folds"),
    ("--layers 2", "--layers 2: … has 1 layer"),
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
    ("--hub-token hf_a", "hub_token is not supported: `mybert push` uploads"),
    ("--use-liger-kernel true", "use_liger_kernel"),
    ("--report-to comet_ml", "--report-to: … comet"),
    ("--deepspeed missing.json", "--deepspeed missing.json: there is no such file"),
    ("--fsdp-config missing.json", "--fsdp-config missing.json: there is no such file"),
    ("--save-strategy no", "value, or add --load-best-model-at-end false"),
    ("--optim adamw_bnb_8bit", "bitsandbytes"),
    ("--lr-scheduler-type cosine_with_min_lr", "min_lr or min_lr_rate"),
    ('--lr-scheduler-kwargs {"foo":1}', "--lr-scheduler-kwargs: … unexpected keyword argument 'foo'"),
    ("--adam-beta1 1.5", "adam_beta1: expected 0 or more and below 1, found 1.5"),
    ("--dataloader-num-workers -1", "dataloader_num_workers: expected 0 or more, found -1"),
]
RESUMED = [
    ("--weight-decay 0.5", "--weight-decay is 0.5, the run was started with 0.01"),
    ("--label-smoothing-factor 0.1", "--label-smoothing-factor is 0.1, the run was started with 0.0"),
    ("--eval-delay 1", "--eval-delay is 1"),
    ("--optim adafactor", "--optim is 'adafactor', the run was started with 'adamw_torch"),
    ("--gradient-accumulation-steps 2", "sequences_per_step is"),
]


def files_of(content: list | str | dict) -> dict:
    return (
        content if isinstance(content, dict) else {"train.csv" if isinstance(content, str) else "train.jsonl": content}
    )


CASES = [
    (task, files := files_of(content), f"--train {next(iter(files))} {words}", message)
    for task, cases in FILES.items()
    for content, words, message in cases
]
CASES += [
    (
        *(task, {"train.jsonl": [good, good | wrong, good, good]}, "--train train.jsonl"),
        f"train.jsonl: 1 of 4 … cannot be used: line 2: … {message} … ; correct them, or leave them out by",
    )
    for task, cases in REFUSED.items()
    for good, wrong, message in cases
]
CASES += [
    ("text-classification", dict(zip(("a.jsonl", "b.jsonl"), rows, strict=False)), f"--train a.jsonl {words}", message)
    for rows, words, message in TOGETHER
]
CASES += [
    (
        "text-classification",
        {"train.jsonl": OPINIONS},
        f"--train train.jsonl --validation train.jsonl {words}",
        message,
    )
    for words, message in SETTINGS
]


@pytest.fixture(scope="module")
def other_vocabulary(classifier, tmp_path_factory):
    """The classifier with another last token."""
    folder = shutil.copytree(classifier, tmp_path_factory.mktemp("other") / "model")
    tokens = MyBertTokenizer.from_pretrained(classifier).get_vocab()
    MyBertTokenizer([*sorted(tokens, key=tokens.get)[:-1], "another"]).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("task", "files", "words", "message"), CASES, ids=[case[-1] for case in CASES])
def test_a_mistake_is_one_line_and_costs_no_finished_model(
    finetune_refused, classifier, other_vocabulary, tmp_path, task, files, words, message
):
    write_files(tmp_path, files)
    (tmp_path / "classifier").symlink_to(classifier)
    (tmp_path / "other").symlink_to(other_vocabulary)
    shutil.copytree(classifier, tmp_path / "out")
    finetune_refused(task, [*words.split(), "--overwrite"], message)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "",
            "4 folds need as many rows with different texts, and the 12 training rows have 2; choose fewer by --folds",
        ),
        ("--seeds 2", "few labels: cross-validation trains with one seed; give --validation, or leave --seeds out"),
    ],
)
def test_what_few_labels_cannot_do_is_refused(assert_refused, tiny_checkpoint, tmp_path, option, message):
    write_files(tmp_path, {"train.jsonl": OPINIONS[:2] * 6})
    words = f"finetune --task text-classification --model {tiny_checkpoint} --train train.jsonl --output out {option}"
    assert_refused(words.split(), message)


@pytest.mark.parametrize(("words", "message"), RESUMED, ids=[words for words, _ in RESUMED])
def test_a_run_is_not_resumed_with_other_arguments(finetune_refused, classifier, tmp_path, words, message):
    shutil.copytree(classifier, tmp_path / "out")
    same = ["--train", classifier.parent / "train.jsonl", "--num-train-epochs", 3, "--resume"]
    finetune_refused("text-classification", [*same, *words.split()], message)


def test_a_folder_without_a_run_is_not_resumed(finetune_refused, classifier, tmp_path):
    shutil.copytree(classifier, tmp_path / "out", ignore=shutil.ignore_patterns("manifest.json"))
    words = ["--train", classifier.parent / "train.jsonl", "--resume"]
    finetune_refused("text-classification", words, "has no run of `mybert finetune` to continue")
