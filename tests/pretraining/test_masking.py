import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mybert.common.errors import UserError
from mybert.pretraining.data.masking import IGNORED, Masker

sequences = st.lists(st.lists(st.integers(8, 160), min_size=0, max_size=70), min_size=1, max_size=8)


def run(masker, rows, epoch=0, indices=None):
    """Rows of ids → (masked rows, label rows)."""
    lengths = np.array([len(row) for row in rows])
    indices = np.arange(len(rows)) if indices is None else np.array(indices)
    flat = np.array([token for row in rows for token in row], dtype=np.int32)
    masked, labels = masker(flat, lengths, np.full(len(rows), epoch), indices)
    cut = np.cumsum(lengths)[:-1]
    return np.split(masked, cut), np.split(labels, cut)


def wrap(tokenizer, row):
    return [tokenizer.cls_token_id, *row, tokenizer.sep_token_id]


def text_row(tokenizer, text):
    return tokenizer(text)["input_ids"]


@settings(max_examples=150)
@given(
    rows=sequences, probability=st.floats(0.01, 0.9), seed=st.integers(0, 2**32), cap=st.none() | st.integers(1, 20)
)
def test_each_sequence_has_exactly_the_rounded_share_of_its_tokens_labelled(tokenizer, rows, probability, seed, cap):
    rows = [wrap(tokenizer, row) for row in rows]
    masker = Masker.from_tokenizer(tokenizer, mlm_probability=probability, max_predictions=cap, seed=seed)
    masked, labels = run(masker, rows)
    for row, masked_row, label_row in zip(rows, masked, labels, strict=True):
        expected = max(1, round(probability * len(row)))
        expected = min(expected, len(row) - 2, *([cap] if cap else []))
        assert (label_row != IGNORED).sum() == expected
        chosen = label_row != IGNORED
        np.testing.assert_array_equal(label_row[chosen], np.array(row)[chosen])
        np.testing.assert_array_equal(masked_row[~chosen], np.array(row)[~chosen])
        assert not chosen[[0, -1]].any()


@settings(max_examples=60)
@given(rows=sequences, seed=st.integers(0, 2**32), epoch=st.integers(0, 1000), whole_words=st.booleans())
def test_a_mask_depends_on_its_example_alone_and_not_on_the_batch(tokenizer, rows, seed, epoch, whole_words):
    rows = [wrap(tokenizer, row) for row in rows]
    masker = Masker.from_tokenizer(tokenizer, seed=seed, whole_words=whole_words)
    together = run(masker, rows, epoch, range(len(rows)))
    for i in reversed(range(len(rows))):
        alone = run(masker, [rows[i]], epoch, [i])
        np.testing.assert_array_equal(alone[0][0], together[0][i])
        np.testing.assert_array_equal(alone[1][0], together[1][i])


def test_masks_differ_between_epochs_examples_and_seeds(tokenizer):
    rows = [wrap(tokenizer, range(20, 80))]
    base = run(Masker.from_tokenizer(tokenizer, seed=1), rows, 0, [5])[1][0]
    for seed, epoch, index in [(2, 0, 5), (1, 1, 5), (1, 0, 6)]:
        assert (run(Masker.from_tokenizer(tokenizer, seed=seed), rows, epoch, [index])[1][0] != base).any()


def test_the_mask_of_a_given_seed_epoch_and_example_never_changes(tokenizer):
    rows = [wrap(tokenizer, range(20, 52))]
    masked, labels = run(Masker.from_tokenizer(tokenizer, seed=7), rows, 3, [11])
    assert np.flatnonzero(labels[0] != IGNORED).tolist() == [8, 12, 22, 29, 32]
    assert masked[0][[8, 12, 22, 29, 32]].tolist() == [4, 4, 106, 4, 29]


def test_labelled_tokens_are_replaced_80_10_10_by_ordinary_tokens(tokenizer):
    rows = [wrap(tokenizer, [40] * 62)] * 2000
    masker = Masker.from_tokenizer(tokenizer)
    masked, labels = (np.concatenate(part) for part in run(masker, rows))
    new = masked[labels != IGNORED]
    n = len(new)
    assert n == 2000 * round(0.15 * 64)
    ordinary = set(range(len(tokenizer))) - set(tokenizer.all_special_ids)
    ordinary -= {i for token, i in tokenizer.get_vocab().items() if token.startswith("[unused")}
    replaced = new[(new != tokenizer.mask_token_id) & (new != 40)]
    assert set(replaced.tolist()) <= ordinary
    assert set(replaced.tolist()) >= ordinary - {40}, "every ordinary token is drawn sooner or later"
    counts = np.bincount(replaced, minlength=len(tokenizer))[sorted(ordinary - {40})]
    assert counts.max() < 3 * counts.mean()
    chance = 1 / len(ordinary)  # a replacement that is the original again
    for share, count in [
        (0.8, (new == tokenizer.mask_token_id).sum()),
        (0.1 * (1 - chance), len(replaced)),
        (0.1 * (1 + chance), (new == 40).sum()),
    ]:
        assert abs(count - n * share) < 4 * np.sqrt(n * share * (1 - share))


def test_every_position_is_labelled_equally_often(tokenizer):
    rows = [wrap(tokenizer, range(20, 52))] * 4000
    _, labels = run(Masker.from_tokenizer(tokenizer), rows)
    counts = (np.stack(labels) != IGNORED).sum(0)[1:-1]
    share = 5 / 32
    assert counts.sum() == 4000 * 5
    assert np.abs(counts - 4000 * share).max() < 4.5 * np.sqrt(4000 * share * (1 - share))


def test_special_tokens_are_never_labelled_even_where_nothing_else_is_left(tokenizer):
    specials = tokenizer.all_special_ids
    _, labels = run(Masker.from_tokenizer(tokenizer, mlm_probability=0.9), [specials, [*specials, 40]])
    assert (labels[0] == IGNORED).all()
    assert labels[1].tolist() == [IGNORED] * len(specials) + [40]


def words_of(tokenizer, row):
    """Brute force: lists of positions; a word is a piece and the `##` pieces after it."""
    words = []
    for position, token in enumerate(tokenizer.convert_ids_to_tokens(row)):
        if token in tokenizer.all_special_tokens:
            words.append(None)
        elif token.startswith("##") and words and words[-1] is not None:
            words[-1].append(position)
        else:
            words.append([position])
    return [word for word in words if word]


@settings(max_examples=100)
@given(
    rows=st.lists(
        st.lists(st.sampled_from([41, 42, 43, 44, 45, 50]), min_size=1, max_size=40), min_size=1, max_size=5
    ),
    seed=st.integers(0, 2**32),
    probability=st.floats(0.05, 0.6),
)
def test_whole_words_are_labelled_together_within_the_number(tokenizer, rows, seed, probability):
    rows = [wrap(tokenizer, row) for row in rows]
    masker = Masker.from_tokenizer(tokenizer, seed=seed, mlm_probability=probability, whole_words=True)
    _, labels = run(masker, rows)
    for row, label_row in zip(rows, labels, strict=True):
        chosen = set(np.flatnonzero(label_row != IGNORED).tolist())
        words = words_of(tokenizer, row)
        budget = min(max(1, round(probability * len(row))), len(row) - 2)
        assert 1 <= len(chosen) <= budget
        if min(map(len, words)) > budget:
            assert len(chosen) == budget, "leading pieces of one word"
            continue
        assert all(chosen.isdisjoint(word) or chosen.issuperset(word) for word in words)
        left = [len(word) for word in words if chosen.isdisjoint(word)]
        assert not left or min(left) > budget - len(chosen), "no word that would still fit is passed over"


@pytest.mark.parametrize("text", ["我们学习我们学习", "well-known", "hello, hello, hello!"])
def test_chinese_characters_and_punctuation_are_words_of_their_own(tokenizer, text):
    row = text_row(tokenizer, text)
    assert tokenizer.unk_token_id not in row
    assert all(len(word) == 1 for word in words_of(tokenizer, row))
    masker = Masker.from_tokenizer(tokenizer, whole_words=True)
    _, labels = run(masker, [row] * 300, 0, range(300))
    assert {int((label != IGNORED).sum()) for label in labels} == {max(1, round(0.15 * len(row)))}
    assert ((np.stack(labels) != IGNORED).sum(0)[1:-1] > 0).all()


def test_pieces_of_a_word_are_replaced_one_by_one(tokenizer):
    row = wrap(tokenizer, text_row(tokenizer, "tokenizers")[1:-1] * 8)
    masked, labels = run(Masker.from_tokenizer(tokenizer, whole_words=True), [row] * 2000)
    new, old = np.concatenate(masked), np.concatenate(labels)
    share = (new[old != IGNORED] == tokenizer.mask_token_id).mean()
    assert abs(share - 0.8) < 0.02


def test_a_tokenizer_without_a_mask_token_is_refused():
    class Maskless:
        mask_token_id = None

    with pytest.raises(UserError, match="mask token"):
        Masker.from_tokenizer(Maskless())
