"""Words of raw text: BERT's pieces without rules, and the words of the training rows with rules learned from them."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from json_files import read_lines
from new_tasks import task_of
from tiny_models import TinyModels
from tokenizers import AddedToken, PreTokenizedString
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import BertTokenizer, pipeline

from modeling_mybert import MyBertConfig, MyBertForTokenClassification
from modeling_mybert.words_mybert import AddedTokens, WordSplitter
from mybert.common.errors import warn_once
from mybert.explanation.explainer import Explainer
from mybert.inference.predictor import Predictor
from mybert.rows.word_rules import learn_word_rules
from tokenization import MyBertTokenizer

NORMALIZER = BertNormalizer(lowercase=False, strip_accents=False)
NAMES = "U.S. U.N. U.S.-led O'Neill D'Amato J. Smith Inzamam-ul-Haq AT&T S&P Rome A.".split()  # noqa: SIM905
PLAIN = "the of in won mid-week all-rounder 1996-08-22 10,000 3.5 8:30 6-4 %".split()  # noqa: SIM905
CLITICS = ["'s", "n't", "'re"]
CLOSING, OPENING = [",", ";", ")", "...", "?", '"'], ["(", "$"]


def newspaper(count: int, seed: int = 0) -> list[tuple[str, list[str]]]:
    """Texts and their words as CoNLL-2003 and the Penn Treebank write them."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        words, text = [], ""
        for _ in range(draw.randint(3, 12)):
            word = draw.choice(NAMES + PLAIN)
            opening = draw.choice(OPENING) if draw.random() < 0.1 else ""
            text += (" " if text else "") + opening + word
            words += [opening, word] if opening else [word]
            if draw.random() < 0.15 and word.isalpha():
                clitic = draw.choice(CLITICS)
                text, words = text + clitic, [*words, clitic]
            elif draw.random() < 0.2 and not word.endswith("."):
                mark = draw.choice(CLOSING)
                text, words = text + mark, [*words, mark]
            elif draw.random() < 0.05:
                text, words = text + " -", [*words, "-"]
        if not text.endswith((".", "-")):
            text, words = text + ".", [*words, "."]
        found.append((text, words))
    return found


def split(text: str, rules: dict | None = None) -> list[str]:
    return [text[start:end] for start, end in WordSplitter(rules)(text)]


def bert_words(text: str) -> list[tuple[int, int]]:
    pieces = PreTokenizedString(text)
    pieces.normalize(NORMALIZER.normalize)
    BertPreTokenizer().pre_tokenize(pieces)
    return [offsets for _, offsets, _ in pieces.get_splits("original", "char")]


LETTERS = st.sampled_from(
    "aB é ́\u0301\u200d\u00ad\u00a0\u3000\t\n\r\u2028\x85\x0b\x00\ufffd\u2019\u2013東京かカ한हिन्दी،.。'-$+€°½²ⅷ😀_()«»"
)


@settings(max_examples=300)
@given(st.text(LETTERS, max_size=30) | st.text(max_size=20))
def test_without_rules_words_are_berts(text):
    assert WordSplitter()(text) == bert_words(text)


def test_every_character_is_read_as_by_bert():
    """Also those that Python and the tokenizers library know by different versions of Unicode."""
    letters = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    text = " ".join(f"a{letter}b" for letter in letters)
    assert WordSplitter()(text) == bert_words(text)


@pytest.mark.parametrize("words", [["the", "film", ".", "東", "京", "(", "a", ")"], ["the", "film", "3"]])
def test_words_of_bert_need_no_rules(words):
    assert learn_word_rules([words] * 9) is None


def test_words_of_raw_text_are_those_of_the_training_rows():
    rules = json.loads(json.dumps(learn_word_rules([words for _, words in newspaper(600)])))  # as config.json has them
    other = newspaper(400, seed=1)
    equal = [split(text, rules) == words for text, words in other]
    assert np.mean(equal) > 0.97 and np.mean([split(text) == words for text, words in other]) < 0.2
    assert all("".join(split(text, rules)) == text.replace(" ", "") for text, _ in other)
    for text, words in {
        "The U.S., O'Neill's": ["The", "U.S.", ",", "O'Neill", "'s"],
        "U.N.-led (Smith)": ["U.N.-led", "(", "Smith", ")"],
        "McNeil-ul-Nye won't": ["McNeil-ul-Nye", "wo", "n't"],  # words that no row has
        "In Paris. She won.": ["In", "Paris", ".", "She", "won", "."],
        "B&B 12,345.6 at 9:15.": ["B&B", "12,345.6", "at", "9:15", "."],
    }.items():
        assert split(text, rules) == words


@pytest.mark.parametrize(
    ("sentences", "texts"),
    [
        (["Ann , in Rome ."], {"Ann, in Rome.": "Ann , in Rome ."}),
        (["a film, a book.", "(the song)"], {"a play, (a sea).": "a play, (a sea)."}),  # split at spaces only
        (["e - mail , add - on", "Al - Zaman"], {"re-do": "re - do"}),  # Universal Dependencies of English
        (["l' homme d' Ann", "L' ami aujourd'hui", "l' eau d' Ada"], {"L'île d'or": "L' île d' or"}),
        (["qu\u2019 il l\u2019 ami"] * 3, {"qu\u2019on l'a": "qu\u2019 on l' a"}),
        (["l' ami n' est pas"] * 3, {"l\u2019an n\u2019a": "l\u2019 an n\u2019 a"}),  # typographic apostrophes
        (["all' est dell' Italia , sì ."], {"dell'uomo, nell'acqua.": "dell' uomo , nell' acqua ."}),  # unseen clitics
        (
            ["dit -il", "va -t-il", "est -il ?", "a -t-il", "prends -le", "mange -le", "rendez-vous"],
            {"rend-il, a-t-il? (dit-il)": "rend -il , a -t-il ? ( dit -il )", "Vaux-le-Vicomte": "Vaux-le-Vicomte"},
        ),
        (["dit -elle", "est -ce", "est -ce", "dit -elle"], {"est-elle": "est -elle"}),
        (["Ali'nin evi Ankara'da ."] * 3, {"İzmir'in": "İzmir'in"}),  # Turkish
        (["'s-Hertogenbosch en 't Hooft zag foto's"] * 3, {"'t Hart in 's-Hage": "'t Hart in 's-Hage"}),  # Dutch
        (['ארה"ב וד"ר כהן , " כן "'] * 3, {'חז"ל': 'חז"ל'}),  # Hebrew
        (["EE.UU. y Sr. López ¿ Qué ?"] * 3, {"¿EE.UU.?": "¿ EE.UU. ?"}),
        (["北 京 A 股 U.S. 股 。"], {"北京U.S.股。": "北 京 U.S. 股 。"}),  # characters are words
        (["am 18. Mai 1996 .", "am 3. Juni 1997 ."], {"am 5. Juli 1998.": "am 5. Juli 1998 ."}),
        (["Mr. Lee met Dr. Poe ."] * 3, {"Mr. Poe met Dr. Lee.": "Mr. Poe met Dr. Lee ."}),
        (["@ann #fun http://t.co/x :)"] * 3, {"@bo #sad http://a.b/c :)": "@bo #sad http://a.b/c :)"}),
        (["nice :) so <3 !!! ok ;-) ..."] * 3, {"so:) wow!!! <3 ;-) hm...": "so :) wow !!! <3 ;-) hm ..."}),
        (["z.B. u.a. in Rom ."] * 3, {"z.B. u.a.": "z.B. u.a."}),
        (["10% of 5$ ."], {"20% of 6$.": "20% of 6$ ."}),
    ],
)
def test_rules_follow_the_words_of_each_corpus(sentences, texts):
    rules = learn_word_rules([sentence.split() for sentence in sentences])
    for text, words in texts.items():
        assert split(text, rules) == words.split()


@pytest.mark.parametrize(
    ("words", "warns"),
    [("北京 是 首都", True), ("ฉัน รัก กรุงเทพ", True), ("北 京 是 首 都", False), ("서울은 크다", False)],
)
def test_words_of_a_script_without_spaces_are_asked_for(words, warns, caplog):
    warn_once.cache_clear()
    rules = learn_word_rules([words.split()] * 3)
    task = task_of("token-classification", MyBertConfig(word_rules=rules))
    task.prepare(Dataset.from_dict({"text": [words.replace(" ", "")]}))
    assert ("pass its words as a list" in caplog.text) == warns


def with_added_tokens(tokenizer: BertTokenizer) -> BertTokenizer:
    tokenizer.add_special_tokens({"additional_special_tokens": ["[E1]", "[/E1]"]})
    flags = [AddedToken("<l>", lstrip=True, rstrip=True), AddedToken("Covid-19", single_word=True)]
    tokenizer.add_tokens([*flags, "<tag>", "two words", "中文", "@", "the"])
    return tokenizer


@pytest.mark.parametrize("kind", [BertTokenizer, MyBertTokenizer])
@pytest.mark.parametrize("rules", [None, {"left": {"a-a": True}, "right": {"a-a": True, " [a": True}}])
def test_a_token_that_a_user_added_is_a_word(kind, rules, minilm_folder):
    tokenizer = with_added_tokens(kind.from_pretrained(minilm_folder))
    splitter = WordSplitter(rules, AddedTokens(tokenizer))
    tokenizer("cut", truncation=True, max_length=3, padding="max_length")  # which the tokenizer remembers
    text = "a[E1]Ann[/E1]b <tag>x: two words, 中文 x (Covid-19) COVID-19s a <l> b@c then [E1][E1]"
    found = [text[start:end] for start, end in splitter(text)]
    expected = "a|[E1]|Ann|[/E1]|b|<tag>|x|:|two words|,|中文|x|(|Covid-19|)|COVID|-|19s|a|<l>|b|@|c|then|[E1]|[E1]"
    assert found == expected.split("|")
    text = "[MASK] [unused0] well-known"
    known = ["well-known"] if rules else ["well", "-", "known"]
    control = ["[MASK", "]", "[unused0", "]"] if rules else ["[", "MASK", "]", "[", "unused0", "]"]
    assert [text[start:end] for start, end in splitter(text)] == [*control, *known]


def test_rules_are_learned_from_words_with_added_tokens(minilm_folder):
    added = AddedTokens(with_added_tokens(MyBertTokenizer.from_pretrained(minilm_folder)))
    words = [["[E1]", "Ann", "[/E1]", ",", "<tag>", "(", "a", ")", "[", "b", "]"]] * 3
    assert learn_word_rules(words, added) is None and learn_word_rules(words) is not None


@given(st.text(LETTERS, max_size=30), st.lists(st.lists(st.text(LETTERS, min_size=1, max_size=6), max_size=5)))
def test_words_are_parts_of_the_text_in_order(text, sentences):
    places = WordSplitter(learn_word_rules(sentences))(text)
    assert all(start < end for start, end in places)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(places))
    covered = {place for start, end in places for place in range(start, end)}
    assert all({*range(start, end)} <= covered for start, end in WordSplitter()(text))


@pytest.fixture
def tagger(tmp_path) -> Path:
    """A model with random weights for words of newspapers, whose tokenizer has tokens of a user."""
    source, folder = TinyModels(tmp_path / "tiny")("tagger"), tmp_path / "tagger"
    model = MyBertForTokenClassification.from_pretrained(source)
    tokenizer = with_added_tokens(MyBertTokenizer.from_pretrained(source))
    model.resize_token_embeddings(len(tokenizer))
    rows = Dataset.from_dict({"tokens": (words := [words for _, words in newspaper(300)]), "tags": words})
    made = task_of("token-classification", model.config).reading_like(rows)
    model.config.word_rules = made.config.word_rules
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def spans_of(answers: list, kind: str = "entity_group") -> list[list[tuple]]:
    return [[(entity[kind], entity["start"], entity["end"]) for entity in some] for some in answers]


def short_texts(seed: int) -> list[str]:
    return [f" [E1]{text}" for text, _ in newspaper(60, seed) if len(text) < 45]  # one window


def test_predictions_pipelines_and_explanations_find_the_same_entities(tagger):
    texts = short_texts(2)
    found = Predictor(tagger, device="cpu")(texts)
    for text, one in zip(texts, found, strict=True):
        assert one["tokens"] == ["[E1]", *split(text[5:], MyBertConfig.from_pretrained(tagger).word_rules)]
        assert [text[start:end] for start, end in one["offsets"]] == one["tokens"]
    expected = spans_of([one["entities"] for one in found], "type")
    words = [text[a:b] for text, some in zip(texts, expected, strict=True) for _, a, b in some]
    assert len(words) > 12 and any("." in word for word in words)
    for batch_size in (1, 4):
        pipe = pipeline("token-classification", model=str(tagger), aggregation_strategy="first", batch_size=batch_size)
        assert spans_of(pipe(texts)) == expected
    assert spans_of(pipe(texts, stride=2)) == expected
    assert spans_of([one["entities"] for one in Explainer(tagger, device="cpu")(texts)], "type") == expected


def test_the_pipeline_groups_tags_of_every_scheme(tagger):
    labels = ["o", "PER_E", "PER_M", "LOC_S"]
    config = MyBertConfig.from_pretrained(tagger)
    config.id2label, config.label2id = dict(enumerate(labels)), {name: i for i, name in enumerate(labels)}
    config.tag_scheme = "BMES"
    config.save_pretrained(tagger)
    texts = short_texts(3)
    found = Predictor(tagger, device="cpu")(texts)
    pipe = pipeline("token-classification", model=str(tagger))
    for text, one in zip(texts, found, strict=True):
        groups = pipe(text, aggregation_strategy="first")
        spans = [(e["entity_group"], e["start"], e["end"]) for e in groups]
        assert spans == [(e["type"], e["start"], e["end"]) for e in one["entities"]]
        assert {kind for kind, *_ in spans} <= {"PER", "LOC"}
        np.testing.assert_allclose([g["score"] for g in groups], [e["score"] for e in one["entities"]], atol=1e-5)
        assert {token["entity"] for token in pipe(text)} <= {*labels[1:]}
    assert any(one["entities"] for one in found)
    with torch.inference_mode():
        assert all(e["entity_group"] != "o" for e in pipe(texts[0], aggregation_strategy="simple"))


@pytest.mark.slow
def test_a_model_of_words_reads_texts_with_the_same_words(tagger, finetune, write_rows, tmp_path):
    rows, texts = [], []
    for text, words in newspaper(80):
        text, words, place, spans = f"[E1]{text}", ["[E1]", *words], 0, []
        rows.append({"tokens": words, "tags": ["B-LOC" if word in ("U.S.", "Rome") else "O" for word in words]})
        for word, tag in zip(words, rows[-1]["tags"], strict=True):
            place = text.index(word, place)
            spans += [[place, place + len(word), tag[2:]]] if tag != "O" else []
            place += len(word)
        texts.append({"text": text, "spans": spans})
    data = ("--train", write_rows("words.jsonl", rows), "--validation", write_rows("texts.jsonl", texts))
    words = ("--test", write_rows("again.jsonl", rows), "--max-steps", 1)
    assert finetune("token-classification", *data, *words, model=tagger) == 0
    parts = (read_lines(tmp_path / "out" / part / "predictions.jsonl") for part in ("validation", "test"))
    assert np.mean([one["tokens"] == other["tokens"] for one, other in zip(*parts, strict=True)]) > 0.95
    assert MyBertConfig.from_pretrained(tmp_path / "out").word_rules["left"]["x. "] is True
