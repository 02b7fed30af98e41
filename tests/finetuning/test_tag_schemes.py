"""Tags of entities: which scheme they have, the entities in them, scores, stray tags."""

import functools
import itertools
import random
from collections import Counter

import numpy as np
import pytest
import seqeval.metrics
from datasets import Dataset
from new_tasks import task_of
from seqeval import scheme as schemes
from seqeval.metrics.sequence_labeling import get_entities

from modeling_mybert import MyBertConfig
from modeling_mybert.entities_mybert import entity_spans, read_tags
from mybert.rows.tag_checks import tag_set_of
from mybert.tasks import entities
from mybert.tasks.token_classification import TokenClassification

TYPES = ("PER", "LOC", "ORG")
LETTERS = {  # begin, inside, end and single
    "IOB2": "BIIB",
    "IOE2": "IIEE",
    "IOBES": "BIES",
    "BILOU": "BILU",
    "BMES": "BMES",
    "BMEWO": "BMEW",
    "BIE": "BIEB",
    "BMEU": "BMEU",
}
FORMS = {
    "B-PER": "{0}-{1}",
    "B_PER": "{0}_{1}",
    "B:PER": "{0}:{1}",
    "B/PER": "{0}/{1}",
    "B|PER": "{0}|{1}",
    "B--PER": "{0}--{1}",
    "B->PER": "{0}->{1}",
    "B PER": "{0} {1}",
    "BPER": "{0}{1}",
    "PERB": "{1}{0}",
    "PER-B": "{1}-{0}",
    "PER_B": "{1}_{0}",
    "PER:B": "{1}:{0}",
    "PER.B": "{1}.{0}",
    "B": "{0}",
}
task = functools.partial(task_of, "token-classification")


def rows_of(*tags: str) -> Dataset:
    return Dataset.from_list(
        [{"tokens": [f"w{i}" for i in range(len(row.split()))], "tags": row.split()} for row in tags]
    )


def draw_spans(draw: random.Random, words: int) -> set[tuple[int, int, str]]:
    found, start = set(), 0
    while start < words:
        end = min(words, start + draw.choice([1, 1, 2, 3, 4]))
        if draw.random() < 0.6:
            found.add((start, end, draw.choice(TYPES)))
        start = end
    return found


def written(spans: set[tuple[int, int, str]], words: int, scheme: str, form: str, outside: str = "O") -> list[str]:
    """The tags of entities in a scheme: the definition of each scheme, independent of the code under test."""
    tags = [outside] * words
    for start, end, kind in sorted(spans):
        for word in range(start, end):
            if scheme in LETTERS:
                begin, inside, last, single = LETTERS[scheme]
                letter = (
                    single if end - start == 1 else begin if word == start else last if word == end - 1 else inside
                )
            elif scheme == "IOB1":
                letter = "B" if word == start and any(s[1] == start and s[2] == kind for s in spans) else "I"
            elif scheme == "IOE1":
                letter = "E" if word == end - 1 and any(s[0] == end and s[2] == kind for s in spans) else "I"
            tags[word] = kind if scheme == "IO" else form.format(letter, kind)
    return tags


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scheme", [*LETTERS, "IOB1", "IOE1"])
def test_the_entities_of_every_scheme_are_found(scheme, form, lower):
    draw = random.Random(f"{scheme} {form}")
    spans = [draw_spans(draw, 12) for _ in range(60)]
    if form == "B":
        spans = [{(start, end, "entity") for start, end, _ in some} for some in spans]
    sentences = [written(some, 12, scheme, FORMS[form]) for some in spans]
    if lower:
        sentences = [[tag.lower() for tag in tags] for tags in sentences]
        spans = [{(start, end, kind.lower()) for start, end, kind in some} for some in spans]
    made = task().fitted(Dataset.from_dict({"tokens": sentences, "tags": sentences}))
    expected = {"BIE": "IOBES", "BMEU": "BMEU"}.get(scheme, scheme)
    assert made.config.tag_scheme == expected and made.main_metric == "f1"
    loaded = TokenClassification(made.options, MyBertConfig.from_dict(made.config.to_dict()))  # saved and loaded
    assert [{*loaded.spans(tags)} for tags in sentences] == spans
    scores = loaded.score([{"tags": tags} for tags in sentences], sentences)
    assert scores == dict.fromkeys(("precision", "recall", "f1", "strict_f1", "accuracy"), 1)
    assert entities.find_strict(sentences, read_tags(Counter(itertools.chain(*sentences))).marks, expected) == spans


def test_a_type_gets_the_positions_of_the_others():
    rows = rows_of("B-PER I-PER O B-MISC")
    assert list(task().fitted(rows).label2id) == ["O", "B-MISC", "B-PER", "I-MISC", "I-PER"]
    suffixed = {f"{kind}-{letter}" for kind in ("PER", "LOC") for letter in "BES"}
    assert {*task().fitted(rows_of("PER-B PER-E O LOC-S")).label2id} == {"O", *suffixed}
    assert {*task().fitted(rows_of("PER PER O LOC")).label2id} == {"O", "PER", "LOC"}
    assert {*task().fitted(rows_of("NOUN VERB B-X")).label2id} == {"NOUN", "VERB", "B-X"}
    trained = ["O", "B-PER", "B-MISC", "I-PER"]  # the head of an earlier training is kept
    assert list(task().with_labels(trained, tag_scheme="IOB2").fitted(rows).label2id) == trained


@pytest.mark.parametrize("outside", ["O", "o", "_", "-", "OUT", "0"])
def test_other_words_for_outside_are_recognised(outside):
    draw = random.Random(0)
    spans = [{span for span in draw_spans(draw, 12) if draw.random() < 0.4} for _ in range(40)]
    sentences = [written(some, 12, "IOB2", "{0}-{1}", outside) for some in spans]
    made = task().fitted(Dataset.from_dict({"tokens": sentences, "tags": sentences}))
    assert made.config.id2label[0] == outside and made.config.tag_scheme == "IOB2"
    assert entities.find(sentences, made._tag_set.marks) == spans and made._tag_set.outside == outside


def test_types_without_positions_are_entities_of_adjacent_equal_tags():
    made = task().fitted(rows_of("PER PER O LOC ORG O", "O O LOC LOC"))
    assert made.config.tag_scheme == "IO" and made.main_metric == "f1"
    assert entity_spans(["PER", "PER", "O", "LOC", "ORG", "O"], made._tag_set.marks) == [
        (0, 2, "PER"),
        (3, 4, "LOC"),
        (4, 5, "ORG"),
    ]
    assert "entities of 3 types in the scheme IO (" in made.summary(rows_of("O"))


@pytest.mark.parametrize(
    "tags",
    [
        "NOUN VERB O ADJ",
        "NOUN VERB DET ADJ ADP PUNCT X",
        ". , -LRB- -RRB- `` '' : $ # NN NNS NNP VB VBD CD DT IN WP$ HYPH SYM UH",  # Penn Treebank
        "$, $. $( ADJA ADJD NN NE VVFIN PTKVZ TRUNC XY",  # STTS
        "NN-TL NP-HL FW-IN-TL BEZ* AT * -- CS-HL B",  # Brown
        "N O ^ S Z V A R ! D P & T X # @ ~ U E $ , G L M Y",  # Twitter (Gimpel et al. 2011): O is a pronoun
        "Ag a ad an b c d e f g h i j k l m n nr ns o p q r s t u v vn w x y z",  # Peking University
        "0 1 2",
        "O O",
        "yes no",
    ],
)
def test_other_tags_stay_plain(tags):
    assert read_tags(Counter(tags.split())) is None
    if len(set(tags.split())) > 1:
        made = task().fitted(rows_of(tags))
        assert made.config.tag_scheme is None and made.main_metric == "accuracy"
        assert made.summary(rows_of(tags)).endswith("plain tags without entities")


def test_an_option_reads_tags_of_entities_as_plain_tags():
    made = task(plain_tags=True).fitted(rows_of("B-PER I-PER O X"))
    assert made.main_metric == "accuracy" and made.check_rows(rows_of("B-PER O X"), training=True) == []
    loaded = TokenClassification(made.options, MyBertConfig.from_dict(made.config.to_dict()))
    assert loaded.main_metric == "accuracy"


@pytest.mark.parametrize(
    ("tags", "marks"),
    [
        ("B-S I-S B-M I-M O", {"B-S": ("B", "S"), "I-M": ("I", "M")}),  # sizes
        ("S-B S-I M-B M-I O", {"S-B": ("B", "S"), "M-I": ("I", "M")}),
        ("B-B I-B B-I I-I O", {"B-I": ("B", "I"), "I-B": ("I", "B")}),  # both ways: the position comes first
        ("B-I-NP I-I-NP O", {"B-I-NP": ("B", "I-NP")}),
        ("I-B_x B-B_x O", {"I-B_x": ("I", "B_x")}),
        ("B-PER-B I-PER-B O", {"B-PER-B": ("B", "PER-B")}),
        ("B-geo-1 I-geo-1 O", {"I-geo-1": ("I", "geo-1")}),
        ("B-$ I-$ B-<loc> I-<loc> O", {"I-$": ("I", "$"), "B-<loc>": ("B", "<loc>")}),
        ("[PER]_B [PER]_I #x_B O", {"[PER]_I": ("I", "[PER]"), "#x_B": ("B", "#x")}),
        ("S-NN B-NN E-NN S-VV", {"E-NN": ("E", "NN")}),  # every word is part of a unit
        ("BEGIN-PER INSIDE-PER BEGIN-LOC O", {"BEGIN-PER": ("B", "PER"), "INSIDE-PER": ("I", "PER")}),
        ("Begin_PER In_PER End_PER Single_LOC O", {"End_PER": ("E", "PER"), "Single_LOC": ("S", "LOC")}),
        ("beginning:per inside:per last:per unit:per O", {"last:per": ("E", "per"), "unit:per": ("S", "per")}),
        ("BPER IPER BLOC O", {"BLOC": ("B", "LOC"), "IPER": ("I", "PER")}),
        ("BEGIN_DATE END_DATE O", {"BEGIN_DATE": ("I", "BEGIN_DATE")}),  # types, as those below
        ("LAST_NAME FIRST_NAME O", {"LAST_NAME": ("I", "LAST_NAME")}),
        ("BOOK INN EVENT O", {"BOOK": ("I", "BOOK")}),
        ("BUS IUS TRAM O", {"BUS": ("I", "BUS")}),
    ],
)
def test_ambiguous_tags_are_decided_by_all_labels(tags, marks):
    found = read_tags(Counter(tags.split()))
    assert marks.items() <= found.marks.items() and not found.stray
    assert found.outside == "O" or "O" not in tags.split()


STRAY = {
    "write O": ["0", "o", "\u041e"],  # the last one is a Cyrillic letter
    "write a tag such as": ["B-", "B", "-PER", "PERSON", "_", "nan"],
    "write I-PER": ["I -PER", "I- PER", "I--PER", "I\u2013PER", "I\u2212PER"],
    "write B-PER": ["B_PER", "b-PER"],
}


@pytest.mark.parametrize(("tag", "remedy"), [(tag, remedy) for remedy, tags in STRAY.items() for tag in tags])
@pytest.mark.parametrize("training", [True, False])
def test_a_stray_tag_is_named_with_its_remedy(tag, remedy, training):
    plain = ["B-PER", "I-PER", "O", "O", "B-LOC", "O", "O"]
    good = {"tokens": list("abcdefg"), "tags": plain}
    bad = {"tokens": list("abcdefg"), "tags": [*plain[:2], tag, *plain[3:]]}
    rows = Dataset.from_list([*[good] * 50, bad, *[good] * 50])
    made = task() if training else task().fitted(Dataset.from_list([good]))
    (problem,) = made.check_rows(rows, training)
    assert (problem.row, problem.word) == (50, 2)
    assert problem.message.startswith(f"token 3 ('c'): the {'tag' if training else 'label'} {tag!r} is not ")
    assert remedy in problem.message or (not training and "such as" in remedy)
    assert made.check_rows(rows.select(range(50)), training) == []


@pytest.mark.parametrize("around", ["{} ", " {}", "{}\t", "{}\r", "{}\xa0", "{}\u200b", "\ufeff{}"])
def test_spaces_around_tags_are_no_part_of_them(around):
    plain = ["B-PER", "I-PER", "O", "B-LOC"]
    rows = Dataset.from_list([{"tokens": list("abcd"), "tags": [around.format(tag) for tag in plain]}] * 3)
    made = task()
    read = made.prepare(rows)
    assert read["tags"][:] == [plain] * 3
    assert made.fitted(read).config.tag_scheme == "IOB2"
    other = made.prepare(Dataset.from_list([{"tokens": list("abcd"), "tags": [around.format("B-PER"), *plain[1:]]}]))
    assert other["tags"][:] == [plain], "of one tag as of all"
    trained = made.fitted(rows)  # by an earlier version
    assert trained.prepare(rows)["tags"][:] == rows["tags"][:]


def test_many_kinds_of_stray_tags_do_not_change_the_scheme_of_a_single_type():
    strays = ["0", "nan", "Disease", "-", "X"]
    rows = [*["B-Disease I-Disease O B-Disease"] * 60, *(f"B-Disease {tag} O O" for tag in strays)]
    problems = task().check_rows(rows_of(*rows), training=True)
    assert [(p.row, p.word) for p in problems] == [(60 + i, 1) for i in range(len(strays))]
    assert all("is not of the scheme IOB2" in p.message for p in problems)


def conlleval(tags: list[str]) -> set[tuple[int, int, str]]:
    """The chunks by startOfChunk and endOfChunk of conlleval, CoNLL's scorer in Perl, rule by rule."""

    def ends(before: str, tag: str, kind_before: str, kind: str) -> bool:
        rules = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O")}
        return (before, tag) in rules or (before not in "O." and kind_before != kind)

    def starts(before: str, tag: str, kind_before: str, kind: str) -> bool:
        rules = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E")}
        return (before, tag) in rules or (tag not in "O." and kind_before != kind)

    found, begun, before = set(), None, ("O", "")
    for place, text in enumerate([*tags, "O"]):
        tag = (text[0], text[2:])
        if begun is not None and ends(before[0], tag[0], before[1], tag[1]):
            found.add((begun, place, before[1]))
            begun = None
        if starts(before[0], tag[0], before[1], tag[1]):
            begun = place
        before = tag
    return found


@pytest.mark.parametrize("letters", ["BI", "IE", "BIES"])
def test_entities_in_any_tags_are_those_of_conlleval_and_seqeval(letters):
    draw = random.Random(letters)
    labels = ["O", "O", *(f"{letter}-{kind}" for letter in letters for kind in ("PER", "LOC"))]
    sentences = [draw.choices(labels, k=draw.randint(1, 9)) for _ in range(3000)]
    marks = read_tags(Counter(labels)).marks
    found = entities.find(sentences, marks)
    assert found == [{(start, end + 1, kind) for kind, start, end in get_entities(tags)} for tags in sentences]
    if len(letters) == 2:  # CoNLL's data mixes no other letters
        assert found == [conlleval(tags) for tags in sentences]
    for tags, some in zip(sentences, found, strict=True):  # no word is lost
        assert sum(end - start for start, end, _ in some) == sum(tag != "O" for tag in tags)


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOE2", "IOBES", "BILOU"])
def test_scores_are_those_of_seqeval(scheme):
    draw = random.Random(0)
    prefixes = {"IOBES": "BIES", "BILOU": "BILU", "IOE1": "IE", "IOE2": "IE"}.get(scheme, "BI")
    names = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "LOC"))]
    true = [draw.choices(names, k=draw.randint(1, 8)) for _ in range(60)]
    predicted = [[tag if draw.random() < 0.7 else draw.choice(names) for tag in tags] for tags in true]
    samples = np.stack([np.arange(60), np.random.default_rng(0).integers(0, 60, 60)])
    tags = read_tags(Counter(names))._replace(scheme=scheme)
    found = entities.scorer(predicted, true, tags)(samples)
    for i, sample in enumerate(samples):
        pair = [true[n] for n in sample], [predicted[n] for n in sample]
        strict = seqeval.metrics.f1_score(*pair, mode="strict", scheme=getattr(schemes, scheme))
        assert found["strict_f1"][i] == pytest.approx(strict)
        if scheme == "BILOU":  # seqeval's default does not know L and U
            pair = [[[tag.replace("L-", "E-").replace("U-", "S-") for tag in row] for row in rows] for rows in pair]
        for name in ("precision", "recall", "f1"):
            assert found[name][i] == pytest.approx(getattr(seqeval.metrics, f"{name}_score")(*pair))
    assert 0 < found["f1"][0] < 1 and found["strict_f1"] != found["f1"]


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["B-PER", "I-PER", "O", "B-PER", "B-PER"], "IOB2"),
        (["I-PER", "I-PER", "B-PER", "O", "I-LOC"], "IOB1"),
        (["I-PER", "B-PER", "O"], "IOB1"),  # B between two entities tells nothing
        (["B-PER", "I-LOC"], "IOB2"),  # one entity begins as in IOB2, one as in IOB1
        (["I-PER", "E-PER", "E-PER", "O", "E-LOC"], "IOE2"),
        (["I-PER", "E-PER", "I-PER", "O", "I-LOC"], "IOE1"),
    ],
)
def test_who_writes_the_letter_always_or_between_entities_only_is_told_apart(tags, scheme):
    assert tag_set_of([tags]).scheme == scheme


def test_predictions_have_the_users_tags_and_all_their_entities():
    made = task().fitted(rows_of("PER-B PER-E O LOC-S", "PER-B PER-M PER-E O"))
    tags = ["PER-M", "PER-E", "O", "PER-E", "LOC-S", "PER-B"]  # most break the scheme
    logits = np.eye(made.config.num_labels)[[made.config.label2id[tag] for tag in tags]] * 9
    found = made._prediction(list("abcdef"), logits, "ab  c d e f", [[0, 1], [1, 2], [4, 5], [6, 7], [8, 9], [10, 11]])
    assert found["tags"] == tags
    spans = [(one["type"], one["start"], one["end"], one["text"]) for one in found["entities"]]
    assert spans == [("PER", 0, 2, "ab"), ("PER", 6, 7, "d"), ("LOC", 8, 9, "e"), ("PER", 10, 11, "f")]
