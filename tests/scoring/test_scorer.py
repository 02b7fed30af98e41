"""Scorer against transformers' BERT on one masked copy at a time."""

import numpy as np
import pytest
import torch
from tiny_models import tiny_config

from modeling_mybert import MyBertForMaskedLM
from mybert import Scorer
from mybert.scoring.masked_copies import WORDS_PER_WINDOW, is_masked, split_words
from tokenization import MyBertTokenizer

TEXTS = ["The unbelievable platypus sat.", "Go!", "Zürich isn't in 東京, said Ann; perhaps hyperparameters matter."]


def log_probabilities(model, tokenizer, ids: list[int], masked: list[int], scored: list[int]) -> np.ndarray:
    """The reference: one copy through transformers; places count without [CLS]."""
    inputs = torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]])
    inputs[0, [place + 1 for place in masked]] = tokenizer.mask_token_id
    with torch.no_grad():
        found = model(input_ids=inputs).logits[0].log_softmax(-1)
    return np.array([found[place + 1, ids[place]].item() for place in scored])


def later_tokens_of_word(tokens: list[str], place: int) -> list[int]:
    end = place + 1
    while end < len(tokens) and tokens[end].startswith("##"):
        end += 1
    return list(range(place, end))


@pytest.mark.parametrize("name", ["stock", "mybert", "pretraining"])
def test_each_token_is_scored_as_by_transformers_with_this_token_masked(name, folders, stock_model, tokenizer):
    for text, found in zip(TEXTS, Scorer(folders[name], device="cpu").texts(TEXTS), strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        expected = [log_probabilities(stock_model, tokenizer, ids, [i], [i])[0] for i in range(len(ids))]
        assert found.tokens == tokenizer.convert_ids_to_tokens(ids)
        np.testing.assert_allclose(found.log_probabilities, expected, rtol=1e-4, atol=1e-4)
        assert found.log_probability == pytest.approx(sum(expected), rel=1e-4)
        assert found.bits_per_character == pytest.approx(-sum(expected) / len(text) / np.log(2), rel=1e-4)


def test_within_word_masks_the_later_tokens_of_the_word_too(folders, stock_model, tokenizer):
    text = "The unbelievable platypus sat."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    expected = [
        log_probabilities(stock_model, tokenizer, ids, later_tokens_of_word(tokens, i), [i])[0]
        for i in range(len(ids))
    ]
    scorer = Scorer(folders["mybert"], device="cpu")
    (found,) = scorer.texts([text], within_word=True)
    np.testing.assert_allclose(found.log_probabilities, expected, rtol=1e-4, atol=1e-4)
    (alone,) = scorer.texts([text])
    first_of_word = next(i for i in range(len(tokens) - 1) if tokens[i + 1].startswith("##"))
    assert abs(found.log_probabilities[first_of_word] - alone.log_probabilities[first_of_word]) > 0.01


def test_a_long_text_is_scored_in_the_window_around_each_token(folders, stock_model, tokenizer):
    text = " ".join(["one two three four five six seven eight nine ten"] * 2)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    (found,) = Scorer(folders["stock"], max_length=10, device="cpu").texts([text])
    assert len(found.log_probabilities) == len(ids) == 20
    starts = [0] * 6 + [4] * 4 + [8] * 4 + [12] * 6  # windows of 8 tokens that share 4
    for place, start in enumerate(starts):
        window, inside = ids[start : start + 8], place - start
        expected = log_probabilities(stock_model, tokenizer, window, [inside], [inside])
        assert found.log_probabilities[place] == pytest.approx(expected[0], rel=1e-4, abs=1e-4)


def test_a_text_without_tokens_has_no_bits_per_character(folders):
    for score in Scorer(folders["mybert"], device="cpu").texts(["", "\u200d"]):
        assert (score.tokens, score.log_probability, score.bits_per_character) == ([], 0, None)


def test_texts_of_equal_tokens_have_equal_scores_in_whatever_batch(folders):
    texts = [f"{word} sat on the unbelievable {word}, said {'Ann ' * n}" for n in range(9) for word in ("cat", "dogs")]
    scorer = Scorer(folders["mybert"], device="cpu", max_tokens_per_batch=200)
    scores = scorer.texts([*texts, *map(str.upper, texts)])
    for one, two in zip(scores[: len(texts)], scores[len(texts) :], strict=True):
        assert one.log_probabilities.tolist() == two.log_probabilities.tolist()


def test_masked_words_are_masked_at_once_and_scored_with_all_their_tokens(folders, stock_model, tokenizer):
    text = " ".join(f"unbelievable word{i} sat, said Ann" for i in range(30))
    (found,) = Scorer(folders["mybert"], device="cpu").masked_words([text], first_number=7)
    words = split_words(text)
    chosen = [place for place in range(len(words)) if is_masked(7, place)]
    assert found.words == [words[place] for place in chosen]
    expected = []
    for start in range(0, len(words), WORDS_PER_WINDOW):
        window = range(start, min(start + WORDS_PER_WINDOW, len(words)))
        pieces = [tokenizer(words[place], add_special_tokens=False)["input_ids"] for place in window]
        ids = [token for word in pieces for token in word]
        owner = [place for place, word in zip(window, pieces, strict=True) for _ in word]
        masked = [place for place, word in enumerate(owner) if word in chosen]
        scores = log_probabilities(stock_model, tokenizer, ids, masked, masked)
        for word in (word for word in window if word in chosen):
            expected.append(sum(s for s, at in zip(scores, masked, strict=True) if owner[at] == word))
    np.testing.assert_allclose(found.log_probabilities, expected, rtol=1e-4, atol=1e-3)
    assert found.characters == sum(len(words[place]) for place in chosen)


def test_a_window_of_words_with_too_many_tokens_is_halved(folders, stock_model, tokenizer):
    text = "alpha beta gamma delta " * 8  # 32 words of one token
    (found,) = Scorer(folders["mybert"], max_length=18, device="cpu").masked_words([text])
    words = split_words(text)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) == len(words) == 32
    expected = []
    for start in (0, 16):
        masked = [place for place in range(16) if is_masked(0, start + place)]
        expected += [*log_probabilities(stock_model, tokenizer, ids[start : start + 16], masked, masked)]
    np.testing.assert_allclose(found.log_probabilities, expected, rtol=1e-4, atol=1e-3)


def test_the_masked_words_do_not_depend_on_the_vocabulary(folders, tmp_path):
    letters = [*"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
    tokenizer = MyBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *letters])
    MyBertForMaskedLM(tiny_config(len(tokenizer), max_position_embeddings=512)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = ["every good word counts here. " * 40, "another text of some other words. " * 30]
    (large, small) = (Scorer(name, device="cpu").masked_words(texts) for name in (folders["stock"], tmp_path))
    assert [score.words for score in large] == [score.words for score in small]
    counted = sum(len(score.words) for score in large)
    words = sum(len(split_words(text)) for text in texts)
    assert 0.1 < counted / words < 0.2


def test_a_token_that_a_user_added_is_a_word_that_is_masked_at_once(folders, tmp_path):
    model = MyBertForMaskedLM.from_pretrained(folders["stock"])
    tokenizer = MyBertTokenizer.from_pretrained(folders["stock"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["[E1]"]})
    tokenizer.add_tokens(["<tag>"])
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (found,) = Scorer(tmp_path, device="cpu").masked_words(["[E1] <tag>x " * 60])
    chosen = [place for place in range(180) if is_masked(0, place)]
    assert found.words == [("[E1]", "<tag>", "x")[place % 3] for place in chosen]
    (alone,) = Scorer(tmp_path, device="cpu").texts(["[E1] <tag>x"])
    assert alone.tokens == ["[E1]", "<tag>", "x"]


def test_a_word_is_correct_when_every_token_is_predicted_and_unknown_words_never_are(folders, tmp_path):
    model = MyBertForMaskedLM.from_pretrained(folders["stock"])
    tokenizer = MyBertTokenizer.from_pretrained(folders["stock"])
    cat = tokenizer.convert_tokens_to_ids("cat")
    with torch.no_grad():
        model.cls.predictions.bias[cat] = 1e4  # always predicted
        model.cls.predictions.bias[tokenizer.unk_token_id] = 1e3
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (found,) = Scorer(tmp_path, device="cpu").masked_words(["cat dog \U0001f9ff " * 40])
    assert {*found.words} == {"cat", "dog", "\U0001f9ff"}
    assert found.correct.tolist() == [word == "cat" for word in found.words]
    assert found.unknown == found.words.count("\U0001f9ff") > 0
