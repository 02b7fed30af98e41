"""Checks of a corpus: unknown tokens, leaks, duplicates, truncation, held-out documents."""

from collections.abc import Iterator

from mybert.common.languages import MANY_MARKS, MANY_UNKNOWN, SOME_UNKNOWN
from mybert.common.quantities import counted
from mybert.reports.findings import Finding, judged, level_of
from mybert.reports.stage_files import StageFiles

_LEAK_AMBER, _LEAK_RED = 0.05, 0.3
_DUPLICATES = 0.05
_CUT_TOKENS = 0.1
_FEW_EXAMPLES, _LARGE_SHARE = 200, 0.1  # held out
_SKIPPED = 0.01


def unknown_tokens(files: StageFiles) -> Iterator[Finding]:
    share = files.manifest["statistics"]["unknown_rate"]
    words = files.results.get("unknown_words") or []
    evidence = f"{share:.2%} of the tokens are [UNK]."
    if words:
        evidence += f" Most frequent: {', '.join(word for word, _ in words[:5])}."
    titles = "The vocabulary fits the documents", "Many tokens are unknown to the vocabulary"
    remedy = "Train a tokenizer on these documents by `mybert tokenizer`, with a higher --character-coverage."
    yield judged("unknown-tokens", level_of(share, SOME_UNKNOWN, MANY_UNKNOWN), titles, evidence, remedy)


def removed_marks(files: StageFiles) -> Iterator[Finding]:
    if (share := files.results.get("removed_marks")) is None:
        return
    evidence = f"{share:.2%} of the characters are combining marks that the tokenizer removes."
    if pairs := files.results.get("equal_words"):
        evidence += f" Equal become: {', '.join(' = '.join(pair) for pair in pairs[:5])}."
    titles = "The tokenizer keeps what tells words apart", "Different words become equal without their marks"
    remedy = (
        "Give `mybert tokenizer` or `mybert pretrain --text` the option --language, such as hi, or --no-strip-accents."
    )
    yield judged("removed-marks", level_of(share, MANY_MARKS), titles, evidence, remedy)


def leaking_documents(files: StageFiles) -> Iterator[Finding]:
    shared = files.results.get("shared_spans")
    if not shared:
        return
    share = shared["found"] / max(shared["spans"], 1)
    evidence = (
        f"Of {shared['spans']:,} passages of {shared['tokens']} tokens drawn from held-out documents, "
        f"{shared['found']:,} ({share:.1%}) are word for word in the training examples."
    )
    titles = "Held-out documents are not in the training documents", "Held-out documents repeat training documents"
    remedy = (
        "Remove near-equal documents by `mybert corpus --deduplicate-near 0.8`; text that all documents share, by a "
        "--filter."
    )
    yield judged("leaks", level_of(share, _LEAK_AMBER, _LEAK_RED), titles, evidence, remedy)


def duplicates(files: StageFiles) -> Iterator[Finding]:
    counts, removed = files.manifest["counts"], removes_duplicates(files)
    number = counts["documents_duplicate"]
    share = number / max(counts["documents"] + (number if removed else 0), 1)
    evidence = f"Duplicate documents: {number:,} ({share:.1%}){', removed' if removed else ''}."
    level = "green" if removed else level_of(share, _DUPLICATES)
    titles = "Few documents are trained on twice", "Many documents are duplicates"
    yield judged("duplicates", level, titles, evidence, "Remove them by `mybert corpus --deduplicate`.")


def removes_duplicates(files: StageFiles) -> bool:
    settings = files.manifest["settings"]
    return bool(settings.get("deduplicate") or settings.get("deduplicate_near"))


def truncation(files: StageFiles) -> Iterator[Finding]:
    counts, statistics = files.manifest["counts"], files.manifest["statistics"]
    kept = sum(part["tokens"] for part in statistics.values() if isinstance(part, dict))
    share = counts["tokens_cut"] / max(1, kept + counts["tokens_cut"])
    evidence = (
        f"{share:.1%} of the tokens were truncated; examples have at most {files.manifest['settings']['max_length']}."
    )
    titles = "Few tokens are truncated", "Truncation removes many tokens"
    remedy = (
        "Build it by `mybert corpus` with a larger --max-length, or with shorter sentences (--one-sentence-per-line)."
    )
    yield judged("truncation", level_of(share, _CUT_TOKENS), titles, evidence, remedy)


def held_out(files: StageFiles) -> Iterator[Finding]:
    counts = files.manifest["counts"]
    examples, documents = counts.get("examples_validation", 0), counts.get("documents_held_out", 0)
    evidence = f"Held out: {counted(examples, 'example')} of {counted(documents, 'document')}."
    level = "green" if examples >= _FEW_EXAMPLES else "amber"
    bad = "The evaluation set is tiny" if examples else "There is no evaluation set"
    remedy = (
        "Use more text, or hold out more of it by `mybert corpus` with a larger --validation-share, or with "
        "--split-documents for long documents."
    )
    share = examples / max(examples + counts["examples_training"], 1)
    wanted = files.manifest["settings"].get("validation_share") or 0.0
    if share > max(_LARGE_SHARE, 3 * wanted):
        level, bad = "amber", f"{share:.0%} of the examples are held out"
        evidence += " Whole documents are held out, and these are few or long."
        remedy = "Use more documents, or split them by `mybert corpus --split-documents`."
    yield judged("evaluation-set", level, ("Enough examples are held out", bad), evidence, remedy)


def single_sentences(files: StageFiles) -> Iterator[Finding]:
    counts = files.manifest["counts"]
    if "is_next_share" not in files.manifest["statistics"].get("training", {}):
        return
    share = counts["documents_of_one_sentence"] / max(counts["documents"], 1)
    evidence = f"{share:.1%} of the documents have one sentence, which can only be followed by a random one."
    titles = "Documents have several sentences", "Most documents have one sentence"
    remedy = "Join related texts into documents, or build examples without pairs by `mybert corpus --no-nsp`."
    yield judged("sentences", level_of(share, 0.5), titles, evidence, remedy)


def skipped_lines(files: StageFiles) -> Iterator[Finding]:
    skipped = files.manifest.get("skipped") or {}
    number = sum(skipped.values())
    share = number / max(number + files.manifest["counts"].get("documents_read", 0), 1)
    reasons = "".join(f"; {reason} {count:,}" for reason, count in skipped.items())
    evidence = f"Skipped lines: {number:,} ({share:.1%}){reasons}."
    titles = "Few or no lines were skipped", "Many lines were skipped"
    remedy = "Correct these lines; --errors strict names the first."
    yield judged("skipped", level_of(share, _SKIPPED), titles, evidence, remedy)


CHECKS = (
    unknown_tokens,
    removed_marks,
    leaking_documents,
    duplicates,
    truncation,
    held_out,
    single_sentences,
    skipped_lines,
)
