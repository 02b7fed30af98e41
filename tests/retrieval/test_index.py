"""`mybert index` and `Index`: against brute force, after additions and deletions, and after a kill."""

import json
import os
import shutil
import signal
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from forked import exit_status
from json_files import change_json, read_lines, write_lines
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import mybert
from mybert import Index, cli
from mybert.retrieval import segments
from mybert.retrieval.balance import DEFAULT
from mybert.retrieval.encoder import Encoder
from mybert.retrieval.ranking import combined, reranked
from mybert.retrieval.words import Words, best_positive, best_rows

WORDS = [
    (animal, verb, place)
    for animal in ("cats", "dogs", "birds", "fish")
    for verb in ("sleep", "run", "eat", "hide")
    for place in ("house", "park", "rain")
]
DOCUMENTS = [
    {
        "id": f"d{number}",
        "title": animal,
        "text": f"{animal} {verb} in the {place} {number}",
        "lang": "en" if number % 2 else "de",
        "year": 2000 + number % 3,
        "tags": [animal, place],
    }
    for number, (animal, verb, place) in enumerate(WORDS)
]
QUERIES = ["a sleeping cat in a house", "birds hide", "fish 47"]


@pytest.fixture(scope="module")
def encoder(models) -> str:
    return str(models("encoder"))


def index_of(folder, encoder, documents, **settings) -> Index:
    file = write_lines(folder.with_suffix(".jsonl"), documents)
    mybert.build_index(encoder, str(file), output=str(folder), language="en", **settings)
    return Index(folder)


def ids(hits) -> list[str]:
    return [hit.id for hit in hits]


def brute_force(encoder: str, documents: list[dict], query: str, mode: str, count: int) -> list[str]:
    texts, model = [f"{one['title']} {one['text']}" for one in documents], Encoder(encoder)
    dense, words = model.passages(texts) @ model.queries([query])[0], Words.of(texts, "en")
    if mode == "words":
        return [documents[row]["id"] for row in best_positive(words.scores(query), count)]
    scores = combined(dense, words.scores(query), DEFAULT) if mode == "hybrid" else dense
    return [documents[row]["id"] for row in best_rows(scores, count)]


@pytest.mark.parametrize(
    ("row", "columns", "expected"),
    [
        ({"ID": "d2", "Title": "fish"}, {}, ("d2", "fish", {})),
        ({"id": 2.0, "title": 1984}, {}, ("2", "1984", {})),
        ({"id": "", "doc_id": 7, "title": ["A", 8]}, {}, ("7", "A 8", {"id": ""})),
        ({"id": 1, "part": 7, "head": "fish", "title": 2}, {"id": "part", "title": "head"},
         ("7", "fish", {"id": 1, "title": 2})),
    ],
)  # fmt: skip
def test_ids_and_titles_of_any_type_and_column_are_read(tmp_path, encoder, row, columns, expected):
    (hit,) = index_of(tmp_path / "index", encoder, [{**row, "text": "cats"}], columns=columns).search("cats")
    assert (hit.id, hit.title, hit.columns) == expected


def test_rows_of_texts_alone_are_known_by_their_line_and_files_by_their_name(tmp_path, encoder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_lines(Path("rows.jsonl"), [{"text": "a red fox"}, {"text": "a blue whale"}])
    Path("table.csv").write_text("text\na green frog\na grey owl\n", encoding="utf-8")
    Path("note.txt").write_text("a white swan\n\nand a black one\n", encoding="utf-8")
    mybert.build_index(encoder, ["rows.jsonl", "table.csv", "note.txt"], output="index", language="en")
    found = {hit.text.strip(): hit.id for hit in Index("index").sample(10)}
    assert found.pop("a white swan\n\nand a black one") == "note.txt"
    lines = ["rows.jsonl:1", "rows.jsonl:2", "table.csv:2", "table.csv:3"]
    assert found == dict(zip(["a red fox", "a blue whale", "a green frog", "a grey owl"], lines, strict=True))


def test_offsets_are_those_of_texts_with_any_line_ends_marks_and_pairs_of_surrogates(tmp_path, encoder):
    text = "A cat\r\nsleeps.\r\n\r\n🎬 Cafe\u0301 with a cat.\rThe \u202ecat\u202c is \U0001d520at.\u2028"
    index = index_of(tmp_path / "index", encoder, [{"id": "d", "text": text * 9}], passage_tokens=16, overlap=4)
    assert index.passages > 3
    for hit in index.sample(100):
        assert (text * 9)[hit.start : hit.end] == hit.text


def test_bm25_counts_beside_a_model_that_has_learned_the_documents_as_beside_its_start(tmp_path, encoder):
    learned = shutil.copytree(encoder, tmp_path / "learned")
    change_json(learned / "config.json", words_weight=6.5)
    assert index_of(tmp_path / "index", str(learned), DOCUMENTS).store.manifest["words_weight"] == 6.5


@pytest.mark.parametrize("mode", ["hybrid", "dense", "words"])
def test_what_is_found_is_what_brute_force_finds(tmp_path, encoder, mode):
    index = index_of(tmp_path / "index", encoder, DOCUMENTS)
    for query in QUERIES:
        assert ids(index.search(query, 10, mode)) == brute_force(encoder, DOCUMENTS, query, mode, 10)


@pytest.mark.parametrize("precision", ["float32", "int8", "binary"])
@pytest.mark.parametrize("has_graph", [False, True])
def test_every_precision_finds_nearly_the_same_with_and_without_a_graph(
    tmp_path, encoder, monkeypatch, precision, has_graph
):
    monkeypatch.setattr(segments, "GRAPH_LEAST", 10 if has_graph else 1000)
    index = index_of(tmp_path / "index", encoder, DOCUMENTS, precision=precision)
    assert bool([*(tmp_path / "index").glob("*/graph.usearch")]) == has_graph
    for query in QUERIES:
        found, expected = ids(index.search(query, 10, "dense")), brute_force(encoder, DOCUMENTS, query, "dense", 10)
        assert len({*found} & {*expected}) >= (10 if precision == "float32" else 9)


@pytest.mark.parametrize("has_graph", [False, True])
def test_an_index_that_grew_and_shrank_finds_what_a_new_one_finds(tmp_path, encoder, monkeypatch, has_graph):
    monkeypatch.setattr(segments, "GRAPH_LEAST", 10 if has_graph else 1000)
    index = index_of(tmp_path / "index", encoder, DOCUMENTS[:20])
    assert index.add(DOCUMENTS[20:40]) == {"added": 20, "replaced": 0, "unchanged": 0, "passages": 20}
    changed = [{**one, "text": one["text"].replace("sleep", "dream")} for one in DOCUMENTS[:4]]
    assert index.add([*changed, *DOCUMENTS[4:8], *DOCUMENTS[40:]]) == {
        "added": 8, "replaced": 3, "unchanged": 5, "passages": 11
    }  # fmt: skip
    assert index.delete(["d10", "d30", "d47"]) == 3
    left = [one for one in [*changed, *DOCUMENTS[4:]] if one["id"] not in ("d10", "d30", "d47")]
    for opened in (index, Index(tmp_path / "index")):
        assert len(opened) == len(left) == opened.passages
        for query in QUERIES:
            order = {hit.id: hit.score for hit in opened.search(query, 50, "dense")}
            fresh = brute_force(encoder, left, query, "dense", 50)
            assert {*order} == {*fresh}
            assert ids(opened.search(query, 5, "dense")) == fresh[:5]


def test_many_small_additions_leave_few_segments(tmp_path, encoder):
    index = index_of(tmp_path / "index", encoder, DOCUMENTS[:16])
    for one in DOCUMENTS[16:]:
        index.add([one])
    assert len(index) == 48 and len(index.store.manifest["segments"]) <= 6
    assert sorted(path.name for path in (tmp_path / "index").glob("segment-*")) == sorted(
        entry["name"] for entry in index.store.manifest["segments"]
    )
    for query in QUERIES:
        assert ids(index.search(query, 10, "words")) == brute_force(encoder, DOCUMENTS, query, "words", 10)


@pytest.mark.parametrize("count", [46, 47, 48])  # the last batch has few documents, or many
def test_each_segment_is_at_least_twice_as_large_as_all_after_it(tmp_path, encoder, monkeypatch, count):
    monkeypatch.setattr("mybert.retrieval.index._BATCH", 200)  # characters
    monkeypatch.setattr(segments, "GRAPH_LEAST", 20)
    index = index_of(tmp_path / "index", encoder, DOCUMENTS[:count])
    sizes = [len(segment) for segment in index.store.segments]
    assert sum(sizes) == count and all(size >= 2 * sum(sizes[n + 1 :]) for n, size in enumerate(sizes))
    assert index.store.segments[0].graph is not None


def test_an_index_that_is_built_again_under_the_same_name_is_read_again(tmp_path, encoder):
    index = index_of(tmp_path / "index", encoder, DOCUMENTS[:24])
    names = [segment.folder.name for segment in index.store.segments]
    assert ids(index.search("fish 47", 1, "words")) == []
    again = index_of(tmp_path / "index", encoder, DOCUMENTS[24:], overwrite=True)
    assert [segment.folder.name for segment in again.store.segments] == names
    assert ids(index.search("fish 47", 1, "words")) == ["d47"]
    kept = index.store.segments[0]
    index.add([{"id": "new", "text": "one more"}])
    assert index.store.segments[0] is kept  # segments that stay are not opened again


def test_a_hybrid_search_compares_few_vectors(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr(segments, "GRAPH_LEAST", 10)
    monkeypatch.setattr("mybert.retrieval.index._SAMPLE", 6)
    monkeypatch.setattr("mybert.retrieval.index._DEPTH", 2)
    monkeypatch.setattr(segments, "_CANDIDATES", 2)
    index, compared, cosines = index_of(tmp_path / "index", encoder, DOCUMENTS), [], segments.Segment.cosines

    def counted(self, query, rows):
        compared.append(len(rows))
        return cosines(self, query, rows)

    monkeypatch.setattr(segments.Segment, "cosines", counted)
    index.search("fish hide", 1)
    assert sum(compared) <= 2 * 5 + 2 * 5 + 5  # candidates of the graph; what it and BM25 have found


@pytest.mark.parametrize(
    ("mode", "head"), [("hybrid", None), ("dense", None), ("words", None), ("words", "regression")]
)
def test_a_document_of_many_passages_hides_no_others(tmp_path, encoder, models, mode, head):
    reranker = head and str(models(head))
    long = {"id": "long", "text": "Birds hide. " * 1500}
    rows = [long, *({"id": f"d{number}", "text": f"birds hide in rain {number}"} for number in range(8))]
    index = index_of(tmp_path / "index", encoder, rows, passage_tokens=16, overlap=0)
    assert index.passages > 200 and len(set(ids(index.search("birds hide", 5, mode, reranker=reranker)))) == 5
    assert len(index.search("birds hide", 20, mode, reranker=reranker)) == 9


def test_single_documents_and_ids_and_empty_ids(tmp_path, encoder):
    (tmp_path / "rows.csv").write_text("id,text\n,cats\n,dogs\n1,birds\n2,fish\n12,rain\n")
    mybert.build_index(encoder, str(tmp_path / "rows.csv"), output=str(tmp_path / "index"), language="en")
    index = Index(tmp_path / "index")
    assert index.add({"id": "new", "text": "a park"})["added"] == 1
    assert index.delete("12") == 1
    found = {key for query in ("cats", "dogs", "birds", "fish", "park") for key in ids(index.search(query))}
    assert found == {f"{tmp_path / 'rows.csv'}:{line}" for line in (2, 3)} | {"1", "2", "new"}


def test_everything_deleted_finds_nothing_and_can_be_added_again(tmp_path, encoder):
    index = index_of(tmp_path / "index", encoder, DOCUMENTS[:3])
    index.delete(["d0", "d1", "d2"])
    assert len(index) == 0 and index.search("cats") == [] and index.store.manifest["segments"] == []
    index.add(DOCUMENTS[:3])
    assert len(index.search("cats")) == 3


def test_filters_keep_documents_with_the_values(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr(segments, "GRAPH_LEAST", 10)
    index = index_of(tmp_path / "index", encoder, DOCUMENTS)
    for where, expected in (
        ({"lang": "de"}, {one["id"] for one in DOCUMENTS if one["lang"] == "de"}),
        ({"year": "2001"}, {one["id"] for one in DOCUMENTS if one["year"] == 2001}),
        ({"year": [2001, 2002], "lang": "en"}, {o["id"] for o in DOCUMENTS if o["year"] > 2000 and o["lang"] == "en"}),
        ({"tags": "rain"}, {one["id"] for one in DOCUMENTS if "rain" in one["tags"]}),
        ({"lang": "d"}, set()),
    ):
        assert {*ids(index.search("cats", 48, "dense", where))} == expected
        assert {*ids(index.search("cats dogs birds fish", 48, "words", where))} == expected


def test_filters_find_values_of_every_type(tmp_path, encoder):
    columns = [
        {"year": 2020},
        {"year": "2020", "flag": True},
        {"year": 2020.0, "flag": 1},
        {"year": None, "flag": "1"},
    ]
    of_numpy = {
        "id": np.float64(5),
        "title": 1984,
        "text": "fish",
        "year": np.int64(2021),
        "sizes": np.arange(2),
        "share": np.float32("nan"),
    }
    rows = [{"id": number, "text": "fish", **of} for number, of in enumerate(columns)]
    index = index_of(tmp_path / "index", encoder, [*rows, {"id": 4, "text": "fish", "null": 'a "null" \\'}])
    index.add(of_numpy)
    for where, expected in (
        ({"year": 2020}, "02"),
        ({"year": np.int64(2021), "sizes": 1, "share": None}, "5"),
        ({"year": 2020.0}, "02"),
        ({"year": "2020"}, "012"),
        ({"year": "2020.0"}, "02"),
        ({"year": None}, "3"),
        ({"flag": True}, "1"),
        ({"flag": "true"}, "1"),
        ({"flag": 1}, "2"),
        ({"flag": "1"}, "23"),
        ({"null": 'a "null" \\'}, "4"),
    ):
        assert {*ids(index.search("fish", where=where))} == {*expected}, where
    assert [hit.title for hit in index.search("1984", 1, "words")] == ["1984"]
    assert index.delete([5.0]) == 1


def test_passages_are_sentences_with_offsets_and_an_overlap(tmp_path, encoder):
    sentences = [f"Go {number} there." for number in range(40)]
    text = "\n\n".join(" ".join(sentences[start : start + 8]) for start in range(0, 40, 8)) + "\n"
    index = index_of(tmp_path / "index", encoder, [{"id": 1, "text": text}], passage_tokens=40, overlap=12)
    spans = [(one["start"], one["end"]) for one in map(index.store.segments[0].passage, range(index.passages))]
    assert len(spans) > 5 and spans[0][0] == 0
    for (start, end), following in zip(spans, [*spans[1:], None], strict=True):
        assert text[start:end].startswith("Go") and text[start:end].endswith(".")
        assert len(index.encoder.embedder.encode([text[start:end]])[0]) <= 40
        if following:
            assert start < following[0] <= end + 2 and following[1] > end
    assert spans[-1][1] == len(text.rstrip())
    (hit,) = index.search("17", mode="words")  # the best passage of the document
    assert hit.text == text[hit.start : hit.end] and "Go 17" in hit.text
    assert "17" in [hit.text[start:end] for start, end in hit.highlights]


def test_a_model_that_reads_less_than_a_passage_is_named_and_its_sizes_are_recorded(tmp_path, encoder, capsys):
    short = shutil.copytree(encoder, tmp_path / "short")
    change_json(short / "tokenizer_config.json", model_max_length=32)
    text = " ".join(f"Go {number}." for number in range(60))
    index = index_of(tmp_path / "index", str(short), [{"id": 1, "text": text}])
    made = index.store.manifest
    assert (made["passage_tokens"], made["overlap"]) == (30, 6)
    said = (
        "the model reads 30 tokens of a passage, not 200: passages have at most 30 tokens, of which at most 6 overlap"
    )
    assert said in capsys.readouterr().out
    spans = [(one["start"], one["end"]) for one in map(index.store.segments[0].passage, range(index.passages))]
    for (_, end), (following, _) in pairwise(spans):
        assert 0 < len(index.encoder.embedder.encode([text[following:end]])[0]) <= 6
    again = index_of(tmp_path / "of short passages", str(short), DOCUMENTS[:2], passage_tokens=20, overlap=12)
    made = again.store.manifest
    assert (made["passage_tokens"], made["overlap"]) == (20, 12)
    assert "the model reads" not in capsys.readouterr().out


@pytest.mark.parametrize("text", ["a" * 30_000, "ab " * 30_000, "x. " * 20_000, "漢字" * 5_000])
def test_giant_documents_without_sentences_are_cut(tmp_path, encoder, text):
    index = index_of(tmp_path / "index", encoder, [{"id": 1, "text": text}, {"id": 2, "text": "short"}])
    assert len(index) == 2 and index.search("short")[0].id == "2"


def test_a_long_title_leaves_room_for_the_text_in_vectors(tmp_path, encoder):
    rows = [{"id": number, "title": "sea " * 2000 + "rome", "text": text} for number, text in enumerate(QUERIES)]
    index = index_of(tmp_path / "index", encoder, rows)
    vectors = index.store.segments[0].unit_vectors(np.arange(3))
    most = index.store.manifest["passage_tokens"] // 2
    expected = index.encoder.passages([f"{'sea ' * most}{text}" for text in QUERIES])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert len(index.search("rome", mode="words")) == 3  # with the whole title
    assert {hit.title for hit in index.search("rome")} == {rows[0]["title"]}


STEPS = (  # of a process that is killed; documents are replaced, merged with others, and deleted
    lambda index: index.add([{"id": "d1", "text": "another text"}, {"id": "new", "text": "fish and words"}]),
    lambda index: index.delete(["d0", "new"]),
    lambda index: index.add([{"id": "d2", "text": "birds again"}]),
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks")
def test_a_kill_at_any_file_operation_leaves_the_index_before_or_after_a_change(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr(segments, "GRAPH_LEAST", 4)
    monkeypatch.setattr(Encoder, "passages", lambda self, texts, progress=None: np.eye(32, dtype="f4")[: len(texts)])
    start, folder, log = tmp_path / "start", tmp_path / "index", tmp_path / "log"
    loaded = index_of(start, encoder, DOCUMENTS[:5]).encoder

    def opened() -> Index:
        index = Index(folder)
        index._loaded = index.store.manifest["inputs"]["model"], loaded
        return index

    def found(index: Index) -> dict[str, bytes]:
        known = {key: digest for key, (*_, digest) in index.store.known().items()}
        texts = "another fish words birds cats dogs sleep"
        assert {*ids(index.search(texts, 10, "words"))} == {*known}
        return known

    shutil.copytree(start, folder)
    states = [found(index := opened())]
    for step in STEPS:
        step(index)
        states.append(found(index))
    status = moment = 0
    while status or not moment:
        moment += 1
        shutil.rmtree(folder)
        shutil.copytree(start, folder)
        log.write_bytes(b"")
        status = exit_status(change_until_killed, opened(), moment, log)
        assert status in (0, -signal.SIGKILL)
        acknowledged = len(log.read_bytes())
        index = opened()
        assert found(index) in states[acknowledged : acknowledged + 2], moment
        index.add([{"id": "last", "text": "last words"}])
        named = {entry[key] for entry in index.store.manifest["segments"] for key in ("name", "deleted")}
        assert {path.name for path in folder.iterdir()} <= named | {"manifest.json"}
    assert acknowledged == len(STEPS) and moment > 50


def change_until_killed(index: Index, moment: int, log: Path) -> None:
    operations = 0

    def count(event: str, arguments: tuple) -> None:
        nonlocal operations
        if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            operations += str(arguments[0]).startswith(str(index.folder))
            if operations == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    with log.open("ab", buffering=0) as file:
        for step in STEPS:
            step(index)
            file.write(b".")


@pytest.mark.skipif(sys.platform != "linux", reason="finds the file of a descriptor in /proc")
def test_what_a_manifest_names_is_on_the_disk_before_it(tmp_path, encoder, monkeypatch):
    """A power failure loses what was not flushed, in any order; a killed process does not."""
    index = index_of(tmp_path / "index", encoder, DOCUMENTS[:6])
    flushed, missing, fsync, replace = set(), [], os.fsync, Path.replace

    def noted(number: int) -> None:
        flushed.add(os.readlink(f"/proc/self/fd/{number}"))
        fsync(number)

    def checked(source: Path, target: Path) -> Path:
        named = [name for entry in json.loads(source.read_bytes())["segments"] for name in entry.values() if name]
        new = [name for name in named if name not in before]
        files = [file for name in new for file in (index.folder / name).rglob("*")] + [index.folder / n for n in new]
        missing.extend(str(path) for path in (source, index.folder, *files) if str(path) not in flushed)
        return replace(source, target)

    before = {path.name for path in index.folder.iterdir()}
    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", checked)
    index.add([{"id": "d0", "text": "another text"}, {"id": "new", "text": "some words"}])
    index.delete(["d1"])
    assert not missing
    assert len([path for path in flushed if "deleted-" in path]) == 2


def test_a_killed_build_is_continued_by_resume(tmp_path, encoder, monkeypatch, capsys):
    monkeypatch.setattr("mybert.retrieval.index._BATCH", 200)  # characters: several segments
    file = write_lines(tmp_path / "documents.jsonl", DOCUMENTS)
    command = ["index", encoder, str(file), "--output", str(tmp_path / "index"), "--language", "en", "--resume"]
    calls, passages = [], Encoder.passages

    def interrupted(self, texts, progress=None):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return passages(self, texts, progress)

    monkeypatch.setattr(Encoder, "passages", interrupted)
    assert cli.main(command) == 130
    assert not (tmp_path / "index").exists()
    assert cli.main(command) == 0
    assert sum(calls) - calls[2] == len(DOCUMENTS)  # none is encoded twice
    assert [*tmp_path.glob(".*")] == []
    for query in QUERIES:
        found = ids(Index(tmp_path / "index").search(query, 10, "dense"))
        assert found == brute_force(encoder, DOCUMENTS, query, "dense", 10)
    assert cli.main(command) == 0 and "nothing is left to compute" in capsys.readouterr().out


def test_the_commands_build_change_and_search_an_index(tmp_path, encoder, capsys):
    for name, one in zip(("a.txt", "b.txt", "c.txt"), DOCUMENTS[::16], strict=True):
        (tmp_path / name).write_text(one["text"])
    index, names = str(tmp_path / "index"), [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.txt")]
    assert cli.main(["index", encoder, *names[:2], "--output", index, "--precision", "int8"]) == 0
    assert cli.main(["index", encoder, names[2], "--output", index, "--add", "--delete", names[0]]) == 0
    output = tmp_path / "found.jsonl"
    assert cli.main(["search", index, "sleep dogs", "birds", "--mode", "words", "--output", str(output)]) == 0
    found = read_lines(output)
    assert found[0]["query"] == "sleep dogs" and found[0]["rank"] == 1 and found[0]["id"] in names[1:]
    assert found[0]["text"][slice(*found[0]["highlights"][0])] in ("dogs", "sleep")
    assert "[dogs]" in capsys.readouterr().out
    assert cli.main(["index", encoder, "--output", index, "--delete", names[1], names[2]]) == 0
    assert len(Index(index)) == 0
    assert cli.main(["search", index, "sleep dogs"]) == 0
    assert capsys.readouterr().out.endswith("'sleep dogs': nothing is found\n")


def test_a_column_of_a_document_replaces_nothing_of_its_result(tmp_path, encoder):
    index_of(tmp_path / "index", encoder, [{**DOCUMENTS[0], "query": "mine", "rank": 9, "score": 7}])
    output = tmp_path / "found.jsonl"
    assert cli.main(["search", str(tmp_path / "index"), "cats", "--output", str(output)]) == 0
    (hit,) = read_lines(output)
    assert (hit["query"], hit["rank"]) == ("cats", 1) and hit["score"] != 7
    assert (hit["input_query"], hit["input_rank"], hit["input_score"]) == ("mine", 9, 7)


@pytest.mark.parametrize("head", ["regression", "pairs"])
def test_a_reranker_adds_its_logits_to_standardized_scores(tmp_path, encoder, models, head):
    index = index_of(tmp_path / "index", encoder, DOCUMENTS)
    reranker = str(models(head))
    hits = index.search("cats in the rain", 5, "hybrid", reranker=reranker)
    everything = index.search("cats in the rain", 48, "hybrid")
    tokenizer = AutoTokenizer.from_pretrained(reranker)
    model = AutoModelForSequenceClassification.from_pretrained(reranker).eval()
    pairs = [("cats in the rain", f"{hit.title} {hit.text}") for hit in everything]
    with torch.no_grad():
        logits = model(**tokenizer(*zip(*pairs, strict=True), padding=True, return_tensors="pt")).logits
    logits = logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]
    expected = logits.numpy() + scipy.stats.zscore([hit.score for hit in everything])
    best = np.argsort(-expected, kind="stable")[:5]
    assert ids(hits) == [everything[place].id for place in best]
    assert np.abs(np.array([hit.score for hit in hits]) - expected[best]).max() < 1e-4
    assert index.search("zebras", 5, "words", reranker=reranker) == []


def test_a_score_beside_a_reranker_does_not_depend_on_the_number_of_passages():
    first, logits = np.geomspace(9, 0.1, 300), np.sin(np.arange(300))
    scores = reranked(first, logits)
    assert scores[:100] == pytest.approx(reranked(first[:100], logits[:100]))
    assert scores[:100] == pytest.approx(logits[:100] + scipy.stats.zscore(first[:100]))


def test_documents_with_a_taken_id_are_counted_together(tmp_path, encoder, capsys):
    index_of(tmp_path / "index", encoder, [*DOCUMENTS[:3], *DOCUMENTS[:2]], errors="skip")
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "skipped" in line]
    assert row.split("│")[1].strip() == "skipped: the id is given twice" and row.split("│")[2].strip() == "2"


def test_a_document_may_have_a_title_only(tmp_path, encoder):
    index = index_of(tmp_path / "index", encoder, [{"id": 1, "title": "zebras", "text": ""}, DOCUMENTS[0]])
    for mode in ("words", "hybrid"):
        assert index.search("zebras", mode=mode)[0].title == "zebras"


def test_equal_documents_are_a_warning(tmp_path, encoder, caplog):
    index = index_of(tmp_path / "index", encoder, [{"id": number, "text": "the same"} for number in range(4)])
    assert "all documents have the same text" in caplog.text
    assert ids(index.search("same")) == ["0", "1", "2", "3"]


def test_unknown_ids_are_left_out_on_request(tmp_path, encoder):
    index = index_of(tmp_path / "index", encoder, DOCUMENTS[:3])
    assert index.delete(["d0", "x"], missing="skip") == 1
    assert len(index) == 2
