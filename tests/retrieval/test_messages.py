"""Messages of indexing, search, retrieval and reranking: for each mistake, what its one line must say."""

import shutil

import pytest
from json_files import change_json, write_lines
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

import mybert
from mybert import Index
from mybert.artifacts.manifest import write_manifest
from mybert.common.errors import UserError
from mybert.finetuning.settings import FinetuneSettings

ONE = '{"id": "1", "text": "a"}\n'
OF_DOCUMENTS = [  # documents, words of `mybert index`, and message; " … " in a message stands for anything
    (ONE + ONE, "", "documents.jsonl, line 2: the id is given twice (found '1'; --columns id="),
    (ONE + '{"id": 2, "text": " "}', "", "documents.jsonl, line 2: the document is empty"),
    ('{"id": 1, "title": null, "text": " "}', "", "documents.jsonl, line 1: the document is empty"),
    (ONE, "--columns id=key", "documents.jsonl has no column 'key' (there are 'id'; name another by --columns)"),
    ('{"id": 1, "key": "", "text": "a"}', "--columns id=key", "documents.jsonl, line 1: 'key' is empty"),
    (ONE, "--columns text=body", "--columns text=body: expected one of id, title before ="),
    ('{"id": 1, "texts": "a"}', "", "no column 'text' (there are 'id', 'texts'; choose one by --text-column)"),
    ("", "", "hold no document with a text; check them and --text-column"),
    (r'{"id": 1, "title": "\ud800", "text": "a"}', "", "documents.jsonl, line 1: a column cannot be stored ("),
    (r'{"id": "\ud800", "text": "a"}', "", "documents.jsonl, line 1: a column cannot be stored ("),
    (ONE, "--add --overwrite", "--overwrite has no effect with --add"),
    (ONE, "--add --precision int8", "--precision is fixed when an index is made"),
    (ONE, "--delete a", "--delete changes an index; to add documents to it too, say --add"),
    (ONE, "--overlap 300", "--overlap: expected less than --passage-tokens"),
    (ONE, "--language xx", "--language xx: expected en, de"),
]


@pytest.mark.parametrize(("content", "words", "message"), OF_DOCUMENTS)
def test_documents_that_cannot_be_indexed(models, tmp_path, assert_refused, content, words, message):
    (tmp_path / "documents.jsonl").write_text(content)
    assert_refused(["index", models("encoder"), "documents.jsonl", "--output", "new", *words.split()], message)


@pytest.fixture(scope="module")
def index(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    rows = [{"id": name, "text": f"cats {name}", "lang": "en"} for name in ("d0", "notes/x.txt")]
    write_lines(folder / "documents.jsonl", rows)
    mybert.build_index(models("encoder"), folder / "documents.jsonl", output=folder / "index", language="en")
    return folder / "index"


@pytest.fixture
def indexes(index, models, tmp_path):
    """Copies of an index: unchanged, of a later version, and damaged; and a classifier of single texts."""
    shutil.copytree(models("windowed"), tmp_path / "single")
    change_json(tmp_path / "single/config.json", finetuned={"task": "text-classification", "inputs": ["text"]})
    for name in ("index", "newer", "damaged"):
        shutil.copytree(index, tmp_path / name)
    change_json(tmp_path / "newer/manifest.json", format=99)
    (file,) = tmp_path.glob("damaged/*/passages.arrow")
    file.write_bytes(file.read_bytes()[:100])


OF_AN_INDEX = [  # words, in which @ stands before the name of a tiny model, and message
    ("search index caf\udce9", "bytes that are not UTF-8"),
    ("search index cats --where langs=de", "no document has the column 'langs' (there are: lang)"),
    ("search index cats --top-k 0", "top-k: expected 1 or more, found 0"),
    ("search index cats --model @filler", "was made by … has other files; name that model"),
    ("search index cats --reranker @multi", "expected one score or two classes … found 2 independent labels"),
    ("search index cats --reranker single", "expected … for a pair of texts, found 2 classes for a single text"),
    ("search newer cats", "newer was made by mybert … a later version; install it, or index again"),
    ("search damaged cats", "damaged is damaged … ; index the documents again"),
    ("search . cats", "is no index; make one by `mybert index`"),
    ("index @encoder --output index --delete d0 y", "index has no document 'y'; nothing is deleted"),
    ("index @encoder --output index --delete x.txt", "nothing is deleted; 'notes/x.txt' is there"),
]


@pytest.mark.parametrize(("words", "message"), OF_AN_INDEX)
def test_an_index_that_cannot_be_searched_or_changed(models, indexes, assert_refused, words, message):
    assert_refused([models(word[1:]) if word[0] == "@" else word for word in words.split()], message)


OF_PYTHON = [
    *(
        (lambda index, name=name: index.add([{"id": "new", "text": "fish", name: "\ud800"}]), "half a surrogate pair")
        for name in ("id", "title", "text", "lang")
    ),
    (lambda index: index.add("fish"), "a document needs an id and a text, found 'f'"),
    (lambda index: index.search("caf\ud800"), "half of a surrogate pair"),
    (lambda index: index.search("cats", top_k=0), "top_k: expected 1 or more, found 0"),
    (lambda _: FinetuneSettings(model="m", output="out", task="ner"), "missing --train: the rows to train on$"),
]


@pytest.mark.parametrize(("call", "message"), OF_PYTHON)
def test_an_argument_that_cannot_be_used_changes_no_index(indexes, tmp_path, call, message):
    with pytest.raises(UserError, match=message):
        call(index := Index(tmp_path / "index"))
    assert len(index) == 2


LEFT_OUT = "; correct it, or skip such lines by --errors skip"
COLLECTION = {"corpus.jsonl": '{"_id": "d1", "text": "a"}\n', "queries.tsv": "q1\ta\n", "qrels.tsv": "q1\td1\t1\n"}
OF_COLLECTIONS = [  # a file, its content, and message
    ("qrels.tsv", "q1\td9\t1\n", "line 1: … is not in --documents (found 'd9'; an id there is 'd1'); correct it"),
    ("qrels.tsv", "q9\td1\t1\n", "line 1: the query is not in --queries (found 'q9'); correct it"),
    ("qrels.tsv", "q1\td1\tgood\n", "line 1: the grade is no whole number (found 'good'); correct it"),
    ("qrels.tsv", "q1\td1\t0.5\n", "line 1: the grade is no whole number (found '0.5'); correct it"),
    ("qrels.tsv", "q1\td1\t1\nq1\td1\t0\n", "line 2: the document has another grade above ('q1', 'd1')"),
    ("qrels.csv", "query-id,score,corpus-id\nq1,1\n", "line 2: wrong number of columns (2, the header has 3)"),
    ("qrels.csv", 'q1,"d1,1\nq1,d1,1\n', "not CSV (unexpected end of data); is a quote not closed?"),
    ("qrels.tsv", "q1\td1\n", "line 1: wrong number of columns (2; expected query, d"),
    ("qrels.jsonl", '{"qid": "q1", "docid": "d1", "rel": null}', f"line 1: 'rel' is empty{LEFT_OUT}"),
    ("qrels.jsonl", '{"qid": "q1", "docid": "d1"}', "no column score or … label (there are qid, docid); rename"),
    ("qrels.tsv", "q1\td1\t0\n", "judges no document as relevant"),
    ("qrels.tsv", "", "judges no document as relevant"),
    ("corpus.jsonl", '{"_id": "1", "text": "a"}\n' * 2, "line 2: the id is given twice ('1', "),
    ("corpus.jsonl", '{"_id": "1", "text": " "}', "line 1: no text (id '1')"),
    ("corpus.jsonl", r'{"_id": "1", "title": "\ud800", "text": "a"}', "line 1: id or title has half of a surrogate"),
    ("corpus.jsonl", '{"text": "a"}', "line 1: no id; expected one of _id, id"),
    ("corpus.json", '[{"id": 1, "text": "a"}, {"text": "b"}]', "row 2: no id; expected one of _id, id"),
    ("corpus.jsonl", '{"_id": "1", "words": "a"}', "expected a column for the text, such as text"),
    ("corpus.jsonl", "", "no documents with an id and a text"),
]


@pytest.mark.parametrize(("name", "content", "message"), OF_COLLECTIONS)
def test_a_collection_that_cannot_be_read(models, tmp_path, assert_refused, name, content, message):
    for file, usual in (COLLECTION | {name: content}).items():
        (tmp_path / file).write_text(usual)
    words = ["--documents", name if name.startswith("corpus") else "corpus.jsonl", "--queries", "queries.tsv"]
    words += ["--judgements", name if name.startswith("qrels") else "qrels.tsv"]
    assert_refused(["evaluate", "--model", models("encoder"), "--output", "out", *words], f"{name} … {message}")


PARTS = [
    ("", "missing --data: labelled rows; or --documents, --queries and --judgements"),
    ("--documents corpus.jsonl", "--queries and --judgements: missing"),
    ("--data rows.csv --language de", "--language has no effect without --documents"),
    *(
        (f"--documents corpus.jsonl --queries corpus.jsonl --judgements corpus.jsonl {words}", message)
        for words, message in (
            ("--task ner", "--task has no effect with --documents"),
            ("--label-separator ;", "--label-separator has no effect with --documents"),
            ("--columns query=a", "--columns query=a: expected one of id, text, title before ="),
        )
    ),
]


@pytest.mark.parametrize(("words", "message"), PARTS)
def test_a_collection_has_three_parts(models, tmp_path, assert_refused, words, message):
    for name in ("corpus.jsonl", "rows.csv"):
        (tmp_path / name).write_text("text,label\na,b\n")
    assert_refused(["evaluate", "--model", models("encoder"), "--output", "out", *words.split()], message)


RETRIEVAL, RERANKING = "retrieval --train rows.jsonl", "reranking --train rows.jsonl"
BY_DOCUMENTS = "retrieval --documents documents.jsonl"
NO_EVALUATION = "--patience=1 --eval-strategy=no --save-strategy=no"
NO_HELD_OUT = "--patience counts evaluations of held-out queries, and there are none; leave it out"
NO_NEGATIVES = "7 rows without a passage that does not answer the query; give … or leave out --hard-negatives 0"
FRACTIONS = "--validation scored.jsonl: scores with a fraction do not say which passages answer"
OF_STEPS = "max-steps=2 num-train-epochs=1 learning-rate=1e-3 per-device-train-batch-size=8 warmup-steps=5"
OF_STEPS += " weight-decay=0.1 load-best-model-at-end=false save-steps=5 patience=2"
OF_TRAINING = [  # task and words, and message
    ("retrieval", "missing --train: the rows to train on, or --documents"),
    (f"{RETRIEVAL} --seeds 2", "--seeds has no effect on retrieval"),
    (f"{RETRIEVAL} --label-separator ;", "--label-separator has no effect"),
    (f"{RERANKING} --dimensions 8", "--dimensions has no effect on reranking"),
    ("ner --train rows.jsonl --documents a", "--documents has no effect on token-classification"),
    (f"{RETRIEVAL} --mined-pairs 5", "--mined-pairs has no effect without --documents"),
    (f"{RERANKING} --max-train-samples 9", "--max-train-samples has no effect on re"),
    (f"{BY_DOCUMENTS} --hard-negatives 2", "--hard-negatives has no effect with --doc"),
    (f"{BY_DOCUMENTS} --dropout 0.2", "--dropout has no effect with --documents alone"),
    (f"{BY_DOCUMENTS} --dimensions 64 161", "--dimensions 161: vectors have 160 dimensions with their words"),
    *(
        (f"{BY_DOCUMENTS} --{option}", f"--{option.split('=')[0]} has no effect with --documents alone")
        for option in OF_STEPS.split()
    ),
    (f"{BY_DOCUMENTS} --model max", "means of hidden states or those of [CLS]"),
    (f"{RETRIEVAL} --lr-scheduler-type=cosine_with_min_lr", "lr_scheduler_kwargs"),
    (f"{RETRIEVAL} --report-to=comet_ml", "comet"),
    (f"{RETRIEVAL} --validation scored.jsonl", FRACTIONS),
    (f"{RERANKING} --validation scored.jsonl", FRACTIONS),
    *(
        (f"{words}{more}", message)
        for words, message in (
            (f"{RETRIEVAL} {NO_EVALUATION}", NO_HELD_OUT),
            (f"{RERANKING} {NO_EVALUATION}", NO_HELD_OUT),
            (f"{RERANKING} --hard-negatives=0", NO_NEGATIVES),
        )
        for more in ("", " --dry-run")
    ),
]


def scored(*scores: float) -> list[dict]:
    return [{"query": "a", "passage": "b", "score": score} for score in scores]


NO_ANSWER = "no passage answers its query; give scores above 0"
SHORT = [{"text": f"it is the {words}. it is the {words}"} for words in ("and", "of", "not", "on", "as", "with")]
OF_ROWS = [  # words, the rows of given.jsonl, and message
    ("reranking --train given.jsonl", scored(-0.5, 0), NO_ANSWER),
    ("reranking --train given.jsonl --dry-run", scored(-1.5, -0.5), NO_ANSWER),
    ("retrieval --documents given.jsonl", [{"text": "one two"}], "no passage has 4 words; name longer documents"),
    ("retrieval --documents given.jsonl", [{"text": "A film is dull."}] * 2, "hold 1 passage, and 4 are needed; name"),
    ("retrieval --documents given.jsonl", SHORT, "hardly a word but stop words; name longer documents"),
    (
        "retrieval --train given.jsonl",
        [{"query": "red car", "positive": "a red car"}, {"query": "red", "positive": "A red car!"}],
        "none can be a negative; give other passages, or negatives of its own",
    ),
    *(
        (f"retrieval --train given.jsonl{columns}", [row], message)
        for row, columns, message in (
            ({"query": "q", "other": "p"}, "", "no column for 'positive' … --columns positive=COLUMN"),
            ({"query": " ", "positive": "p"}, "", f"line 1: 'query' has no text{LEFT_OUT}"),
            ({"premise": "p", "hypothesis": "q", "label": 0}, "", "names classes, which are no grades; keep the rows"),
            ({"query": "q", "positive": None}, "", f"line 1: 'positive' has no text{LEFT_OUT}"),
            ({"query": "q", "positive": "p", "score": "high"}, "", f"line 1: 'score' is no number ('high'){LEFT_OUT}"),
            ({"query": "q", "positive": "p", "score": "nan"}, "", f"line 1: 'score' is no number ('nan'){LEFT_OUT}"),
            ({"query": "q", "positive": "p"}, " --columns positive=answer", "no column 'answer'"),
            ({"query": "q"}, " --columns text=positive", "expected one of query, positive, negatives, score before ="),
        )
    ),
]


@pytest.fixture
def retrieval_refused(models, tmp_path, assert_refused):
    """A function from a task with words, and a message; another model is in the output folder."""
    facts = [(f"q{number} a", f"p{number} b") for number in range(8)]
    write_lines(tmp_path / "rows.jsonl", [{"query": q, "positive": p} for q, p in facts])
    write_lines(tmp_path / "scored.jsonl", [{"query": q, "positive": p, "score": 0.5} for q, p in facts])
    write_lines(tmp_path / "documents.jsonl", [{"text": f"The {q} is what {p} means."} for q, p in facts])
    (tmp_path / "out").mkdir()
    write_manifest(tmp_path / "out", "finetune", settings={}, inputs={}, counts={})

    def refused(words: str, message: str) -> None:
        model = [] if "--model" in words else ["--model", models("encoder")]
        assert_refused(["finetune", *model, "--output", "out", "--overwrite", "--task", *words.split()], message)

    return refused


@pytest.mark.parametrize(("words", "message"), OF_TRAINING)
def test_settings_that_train_nothing(retrieval_refused, models, tmp_path, words, message):
    if words.endswith("--model max"):
        model = SentenceTransformer(str(models("encoder")), device="cpu")
        model[1].pooling_mode = "max"
        model.save(str(tmp_path / "max"), create_model_card=False)
    retrieval_refused(words, message)


@pytest.mark.parametrize("task", ["retrieval", "reranking"])
def test_a_checkpoint_that_cannot_be_trained(retrieval_refused, models, tmp_path, task):
    shutil.copytree(models("encoder"), tmp_path / "bare", ignore=shutil.ignore_patterns("*token*", "vocab.txt"))
    message = "checkpoint bare has no tokenizer; copy its tokenizer.json and tokenizer_config.json into it"
    retrieval_refused(f"{task} --train rows.jsonl --model bare", message)
    shutil.copytree(models("encoder"), tmp_path / "spoilt")
    weights = load_file(tmp_path / "spoilt/model.safetensors")
    weights["embeddings.LayerNorm.bias"][0] = float("nan")
    save_file(weights, tmp_path / "spoilt/model.safetensors", {"format": "pt"})
    retrieval_refused(f"{task} --train rows.jsonl --model spoilt", "embeddings.LayerNorm.bias has NaN or infinite")


@pytest.mark.parametrize(("words", "rows", "message"), OF_ROWS)
def test_rows_that_train_nothing(retrieval_refused, tmp_path, words, rows, message):
    write_lines(tmp_path / "given.jsonl", rows)
    retrieval_refused(words, message)


@pytest.mark.parametrize("given", ["", "two", "0", "-1"])
def test_a_number_of_processes_that_is_none(monkeypatch, retrieval_refused, given):
    monkeypatch.setenv("WORLD_SIZE", given)
    retrieval_refused(RETRIEVAL, f"the environment variable WORLD_SIZE is {given!r}, expected a count; unset it")
