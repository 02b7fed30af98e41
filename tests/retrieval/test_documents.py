"""Pairs mined from documents."""

import random
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from json_files import write_lines

from mybert.retrieval.documents import Miner, read_passages, without_near_duplicates
from mybert.retrieval.negatives import add_negatives
from mybert.retrieval.pairs import Pair, Pairs
from mybert.rows.similar_rows import SIMILAR

WORDS = [a + b for a in "bdfgklmnprst" for b in ("aro", "enu", "ilo", "osa", "umi")]


def sentence(draw: random.Random, words: int = 12) -> str:
    return f"{' '.join(draw.choice(WORDS) for _ in range(words)).capitalize()}."


@pytest.fixture
def documents(tmp_path) -> list[str]:
    draw = random.Random(1)
    end = "Who has the salo of the benu? It was the first one."
    texts = [" ".join([*(sentence(draw) for _ in range(25)), end]) for _ in range(30)]
    rows = [{"title": f"The story of number {number}", "text": text} for number, text in enumerate(texts)]
    return [str(write_lines(tmp_path / "documents.jsonl", rows))]


def test_titles_are_read_and_documents_without_text_are_counted(tmp_path, capsys):
    rows = [{"Title": number, "text": f"One two three four five {number}."} for number in range(3)]
    file = write_lines(tmp_path / "documents.jsonl", [*rows, {"text": None}])
    assert [passage.title for passage in read_passages([str(file)], {}, "skip")] == ["0", "1", "2"]
    assert capsys.readouterr().out == "left out of the documents: 'text' is not a string (1)\n"


def test_every_rule_finds_pairs_whose_query_is_from_its_document(documents):
    passages = read_passages(documents, {}, "strict")
    assert max(len(passage.body.split()) for passage in passages) <= 180
    found = Miner(passages, seed=1).pairs(300).pairs
    assert len(found) == 300
    assert {pair.kind for pair in found} == {"title", "question", "neighbour", "span", "keywords"}
    bodies: dict[int, str] = {}
    for passage in passages:
        bodies[passage.document] = f"{bodies.get(passage.document, passage.title)} {passage.body}"
    for pair in found:
        document = bodies[pair.source].lower().replace(".", "")
        words = pair.query.lower().replace(".", "").split()
        assert set(words) <= set(document.split())
        assert pair.kind in ("keywords", "title") or " ".join(words) in document
        assert len(words) <= 16
    assert Miner(passages, seed=1).pairs(300).pairs == found
    assert Miner(passages, seed=2).pairs(300).pairs != found


@pytest.mark.parametrize(
    "text", ["今天天气很好。我们去{}园玩了。", "วันนี้อากาศดีมากเราไปสวนสาธารณะ{}", "हिन्दी भाषा में लिखना {} है।"]
)
def test_documents_in_other_scripts_give_queries_of_whole_letters(tmp_path, text):
    """A query is a part of its document, and marks stay with their letters."""
    letters = "公東京北南" if "今" in text else "กขคงจ" if "ว" in text else "कखगघच"
    rows = [{"text": text.format(letter * 3)} for letter in letters]
    file = write_lines(tmp_path / "documents.jsonl", rows)
    passages = read_passages([str(file)], {}, "strict")
    assert len(passages) == len(rows)
    found = Miner(passages, seed=1).pairs(40).pairs
    assert len(found) >= 10 and min(len(pair.query) for pair in found) < len(rows[0]["text"]) / 2
    for pair in found:
        for word in pair.query.split() if pair.kind == "keywords" else [pair.query.replace(" ", "")]:
            rest = rows[pair.source]["text"].replace(" ", "").partition(word)[2]
            assert unicodedata.category((rest or "a")[0])[0] != "M"


def test_headings_of_plain_text_are_queries_for_their_sections(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text(
        "# How to open a file\n\nCall the function open with the name of the file.\n\n"
        "Closing a file\n\nCall the method close, or use the statement with.\n"
    )
    passages = read_passages([str(file)], {}, "strict")
    headings = {pair.query: pair.positive for pair in Miner(passages, 1).pairs(100).pairs if pair.kind == "heading"}
    assert headings == {
        "How to open a file": "Call the function open with the name of the file.",
        "Closing a file": "Call the method close, or use the statement with.",
    }


def test_near_duplicates_are_those_that_comparing_all_texts_finds():
    draw = random.Random(0)
    texts = [[draw.choice(WORDS) for _ in range(40)] for _ in range(150)]
    texts += [[draw.choice(WORDS) if draw.random() < 0.07 else word for word in text] for text in texts]
    kept: dict[int, set] = {}
    for place, pairs in enumerate({*pairwise(text)} for text in texts):
        if all(len(pairs & other) < SIMILAR * len(pairs | other) for other in kept.values()):
            kept[place] = pairs
    assert 150 < len(kept) < 250
    assert without_near_duplicates([" ".join(text) for text in texts]) == [*kept]


def test_passages_that_are_left_out_are_counted(tmp_path, capsys):
    text = "The pump is opened with a key."
    file = write_lines(tmp_path / "documents.jsonl", [{"text": text}, {"text": text.upper()}])
    assert len(read_passages([str(file)], {}, "strict")) == 1
    assert capsys.readouterr().out == "documents: 1 of 2 passages left out, near duplicates of others\n"
    read_passages([str(write_lines(tmp_path / "one.jsonl", [{"text": text}]))], {}, "strict")
    assert capsys.readouterr().out == ""


def test_negatives_are_hard_and_no_answers():
    passages = ["the red car drives fast", "a red car is parked", "the ship sails north", "trees are green here"]
    pairs = Pairs([Pair("red car drives", passages[0])])
    (found,) = add_negatives(pairs, [*passages, "The red car drives fast!"], 1, 1, None, 4).pairs
    assert found.negatives == (passages[1],)
    several = Pairs([Pair("red car", passages[0], ("given",)), Pair("red car", passages[1])])
    found = add_negatives(several, passages, 2, 1, None, 8).pairs
    assert found[0].negatives[0] == "given"
    for pair in found:
        assert len(pair.negatives) == 2
        assert not {passages[0], passages[1]} & set(pair.negatives)
    whole = Pairs([Pair("red car", f"The story. {passages[0]}. And it ended well")])
    (found,) = add_negatives(whole, passages, 1, 1, None, 4).pairs
    assert found.negatives == (passages[1],)  # the first one is a part of the positive


def test_hard_negatives_are_drawn_from_the_best_passages():
    cars = [Pair("red car drives", f"the red car number {number} is parked") for number in range(1, 12)]
    flowers = [Pair(f"flower {number}", f"flower {number} in this garden may be red") for number in range(12)]
    others = [Pair(f"query {number}", f"trees in park {number} are green") for number in range(40)]
    pairs = Pairs([Pair("red car drives fast", "the red car drives fast"), *cars, *flowers, *others])

    def drawn(among: int) -> Counter[str]:
        found = [add_negatives(pairs, [], 4, seed, None, among).pairs[0].negatives for seed in range(20)]
        assert all(len({*four}) == 4 for four in found)
        return Counter(text.split()[0] for four in found for text in four)

    assert drawn(11).keys() == {"the"}
    assert drawn(100).keys() == {"the", "flower"}, "trees share no word with the query"
