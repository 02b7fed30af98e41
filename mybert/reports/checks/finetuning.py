"""Checks of the rows of a fine-tuning: leaks, labels that one word gives away, rare classes, unknown tokens."""

from collections.abc import Iterator

from mybert.common.languages import MANY_UNKNOWN, SOME_UNKNOWN
from mybert.reports.findings import Finding, judged, level_of, passed
from mybert.reports.stage_files import StageFiles

_RARE_RED, _RARE_AMBER = 5, 20  # rows of a label
_FEW_RED, _FEW_AMBER = 2, 4  # in the training for few labels
_LEAK_AMBER, _LEAK_RED = 0.005, 0.05  # of the evaluated rows
_GIVEAWAY_AMBER, _GIVEAWAY_RED = 0.85, 0.95  # F1 of a rule "this word, this label"
_GIVEAWAY_ROWS = 10  # of the label; fewer have a word in common by chance


def leaking_rows(files: StageFiles) -> Iterator[Finding]:
    overlaps = files.results.get("data_checks", {}).get("overlaps")
    if overlaps is None:
        return
    clean = True
    for overlap in overlaps:
        share = (overlap["equal"] + overlap["near"]) / max(overlap["rows"], 1)
        level = level_of(share, _LEAK_AMBER, _LEAK_RED) if overlap["of"] != "train" else "green"
        if level == "green":
            continue
        clean = False
        evidence = (
            f"Of {overlap['rows']:,} {overlap['of']} rows, {overlap['equal']:,} are also in the {overlap['in']} rows, "
            f"and {overlap['near']:,} differ from one only in case, punctuation, spaces or a few words."
        )
        remedy = f"Remove these rows from the {overlap['in']} rows; the scores on {overlap['of']} rows are too high."
        title = f"{overlap['of'].capitalize()} rows leak into {overlap['in']} rows"
        yield Finding("leaks", level, title, evidence, remedy)
    if clean:
        yield passed("leaks", "The parts share no rows", "No evaluated row is a copy of a training row.")


def words_that_give_labels_away(files: StageFiles) -> Iterator[Finding]:
    words = files.results.get("data_checks", {}).get("giveaway_words")
    if words is None:
        return
    words = [word for word in words if word["rows"] >= _GIVEAWAY_ROWS]
    title = "No single word gives a label away"
    if not words:
        yield passed("giveaway", title, "The most telling single word tells little.")
        return
    first = words[0]
    evidence = (
        f"{first['word']!r} is in {first['with_label']:,} of the {first['rows']:,} training rows with the label "
        f"{first['label']!r} and in {first['without']:,} of the others (F1 {first['f1']:.2f})."
    )
    remedy = (
        "Check whether the word will be there in real inputs. If not, remove it from the rows (templates, file names)."
    )
    level = level_of(first["f1"], _GIVEAWAY_AMBER, _GIVEAWAY_RED)
    yield judged("giveaway", level, (title, "One word gives a label away"), evidence, remedy)


def rare_classes(files: StageFiles) -> Iterator[Finding]:
    balance = files.results.get("data", {}).get("train", {}).get("balance") or {}
    if len(balance) < 2 or files.is_regression or files.task == "multiple-choice":  # ranges of numbers, or places
        return
    red, amber = (_FEW_RED, _FEW_AMBER) if files.results.get("few_labels") else (_RARE_RED, _RARE_AMBER)
    rare = sorted((count, str(name)) for name, count in balance.items() if count < amber)
    evidence = f"Rarest of {len(balance):,} labels: {min(balance.values()):,} training occurrences."
    if rare:
        evidence = f"Training occurrences: {', '.join(f'{name!r} {count:,}' for count, name in rare[:5])}"
        evidence += f", and {len(rare) - 5:,} more labels." if len(rare) > 5 else "."
    remedy = "Label more rows of these classes, join them with others, or use --class-weights."
    if files.task == "question-answering" or files.has_several_labels:  # no class of a row to weight
        remedy = "Label more rows of these classes."
    level = "red" if rare and rare[0][0] < red else "amber" if rare else "green"
    title = "A label is too rare to learn" if len(rare) == 1 else f"{len(rare):,} labels are too rare to learn"
    yield judged("rare-classes", level, ("Every label has enough training rows", title), evidence, remedy)


def unknown_tokens(files: StageFiles) -> Iterator[Finding]:
    train = files.results.get("data", {}).get("train", {})
    if "unknown_tokens" not in train:
        return
    share = train["unknown_tokens"]
    evidence = f"{share:.2%} of the training tokens are [UNK]."
    titles = "The vocabulary fits the rows", "Many tokens are unknown to the vocabulary"
    remedy = "Use a checkpoint whose vocabulary has these characters, or clean the texts."
    yield judged("unknown-tokens", level_of(share, SOME_UNKNOWN, MANY_UNKNOWN), titles, evidence, remedy)


CHECKS = (leaking_rows, words_that_give_labels_away, rare_classes, unknown_tokens)
