"""Nearly equal rows are those that a comparison of all pairs of rows finds."""

import itertools
import random
import tracemalloc

from mybert.rows import similar_rows
from mybert.rows.similar_rows import SIMILAR, nearly_equal

WORDS = [f"w{number}" for number in range(300)]


def altered(text: str, changes: int, draw: random.Random) -> str:
    words = text.split()
    for place in draw.sample(range(len(words)), changes):
        words[place] = draw.choice(WORDS)
    return " ".join(words)


def brute_force(row, others) -> bool:
    def similar(one, other):
        some, more = ({*itertools.pairwise(text.split())} for text in (one, other))
        return one == other or (bool(some | more) and len(some & more) / len(some | more) >= SIMILAR)

    return any(all(map(similar, row, other)) for other in others)


def test_prefix_filtering_finds_what_a_comparison_of_all_pairs_finds():
    draw = random.Random(0)
    others = [(" ".join(draw.choices(WORDS, k=draw.randint(14, 40))),) for _ in range(150)]
    rows = [(altered(text, changes, draw),) for (text,) in others[:90] for changes in (0, 1, 2, 3)]
    rows += [(" ".join(draw.choices(WORDS, k=30)),) for _ in range(50)]
    found = nearly_equal(rows, others)
    assert found == [brute_force(row, others) for row in rows]
    assert 100 < sum(found) < 340


def test_a_shared_context_with_another_question_and_a_short_text_are_not_nearly_equal():
    context = " ".join(WORDS[:60])
    others = [("who wrote the song", context), ("a short text", "")]
    rows = [("who wrote the song", altered(context, 1, random.Random(0))), ("where is the sea", context)]
    assert nearly_equal([*rows, ("a short texts", "")], others) == [True, False, False]


def test_many_other_rows_are_not_kept_in_memory():
    draw = random.Random(0)
    others = ((" ".join(draw.choices(WORDS, k=60)),) for _ in range(1000))
    rows = [(" ".join(WORDS[:60]),)]
    tracemalloc.start()
    assert nearly_equal(rows, others) == [False]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1000 * 60 * 8  # less than a pointer for each of their words


def test_rows_of_one_template_are_not_all_compared_with_each_other(monkeypatch):
    template = " ".join(WORDS[:12])  # most word pairs, and fewer than similar rows share
    rows = [(f"{template} {' '.join(f'{side}{n}-{i}' for i in range(6))}",) for side in "ab" for n in range(300)]
    similar, compared = similar_rows._similar, []
    monkeypatch.setattr(similar_rows, "_similar", lambda *pair: compared.append(1) or similar(*pair))
    assert not any(nearly_equal(rows[:300], rows[300:]))
    assert len(compared) <= 300 * similar_rows._COMPARED
