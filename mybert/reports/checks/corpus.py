"""Checks of a corpus: unknown tokens, leaks, duplicates, truncation, held-out documents."""

from collections.abc import Iterator

from mybert.common.quantities import counted
from mybert.reports.finding import Finding, level, passed
from mybert.reports.stage_files import StageFiles

_UNKNOWN_AMBER, _UNKNOWN_RED = 0.01, 0.05
_LEAK_AMBER, _LEAK_RED = 0.05, 0.3
_DUPLICATES = 0.05
_CUT_TOKENS = 0.1
_FEW_EXAMPLES = 200
_SKIPPED = 0.01


def unknown_tokens(files: StageFiles) -> Iterator[Finding]:
    share = files.manifest["statistics"]["unknown_rate"]
    words = files.results.get("unknown_words") or []
    evidence = f"{share:.2%} of the tokens are [UNK]."
    if words:
        evidence += f" Most frequent: {', '.join(word for word, _ in words[:5])}."
    found = level(share, _UNKNOWN_AMBER, _UNKNOWN_RED)
    if found == "green":
        yield passed("unknown-tokens", "The vocabulary fits the documents", evidence)
    else:
        remedy = "Train a tokenizer on these documents by `mybert tokenizer`, with a higher --character-coverage."
        yield Finding("unknown-tokens", found, "Many tokens are unknown to the vocabulary", evidence, remedy)


def leaking_documents(files: StageFiles) -> Iterator[Finding]:
    shared = files.results.get("shared_spans")
    if not shared:
        return
    share = shared["found"] / max(shared["spans"], 1)
    evidence = (
        f"Of {shared['spans']:,} passages of {shared['tokens']} tokens drawn from held-out documents, "
        f"{shared['found']:,} ({share:.1%}) are word for word in the training examples."
    )
    found = level(share, _LEAK_AMBER, _LEAK_RED)
    if found == "green":
        yield passed("leaks", "Held-out documents are not in the training documents", evidence)
    else:
        remedy = "Remove near-equal documents by --deduplicate-near 0.8; text that all documents share, by a --filter."
        title = "Held-out documents repeat training documents"
        yield Finding("leaks", found, title, evidence, remedy)


def duplicates(files: StageFiles) -> Iterator[Finding]:
    counts, settings = files.manifest["counts"], files.manifest["settings"]
    removed = settings.get("deduplicate") or settings.get("deduplicate_near")
    number = counts["documents_duplicate"]
    share = number / max(counts["documents"] + (number if removed else 0), 1)
    evidence = f"Copies of other documents: {number:,} ({share:.1%}){', removed' if removed else ''}."
    if removed or share <= _DUPLICATES:
        yield passed("duplicates", "Few documents are trained on twice", evidence)
    else:
        remedy = "Remove them by --deduplicate."
        yield Finding("duplicates", "amber", "Many documents are copies of others", evidence, remedy)


def truncation(files: StageFiles) -> Iterator[Finding]:
    counts, statistics = files.manifest["counts"], files.manifest["statistics"]
    kept = sum(part["tokens"] for part in statistics.values() if isinstance(part, dict))
    share = counts["tokens_cut"] / max(1, kept + counts["tokens_cut"])
    evidence = (
        f"{share:.1%} of the tokens were truncated; examples have at most {files.manifest['settings']['max_length']}."
    )
    if share <= _CUT_TOKENS:
        yield passed("truncation", "Few tokens are truncated", evidence)
    else:
        remedy = "Raise --max-length, or split very long sentences (--one-sentence-per-line with shorter lines)."
        yield Finding("truncation", "amber", "Truncation removes many tokens", evidence, remedy)


def few_held_out(files: StageFiles) -> Iterator[Finding]:
    counts = files.manifest["counts"]
    examples, documents = counts.get("examples_validation", 0), counts.get("documents_held_out", 0)
    evidence = f"Held out: {counted(examples, 'example')} of {counted(documents, 'document')}."
    if examples >= _FEW_EXAMPLES:
        yield passed("evaluation-set", "Enough examples are held out", evidence)
    else:
        remedy = (
            "Use more text, or hold out more of it: a larger --validation-share, or --split-documents for long ones."
        )
        title = "The evaluation set is tiny" if examples else "There is no evaluation set"
        yield Finding("evaluation-set", "amber", title, evidence, remedy)


def single_sentences(files: StageFiles) -> Iterator[Finding]:
    counts = files.manifest["counts"]
    if "is_next_share" not in files.manifest["statistics"].get("training", {}):
        return
    share = counts["documents_of_one_sentence"] / max(counts["documents"], 1)
    evidence = f"{share:.1%} of the documents have one sentence, which can only be followed by a random one."
    if share <= 0.5:
        yield passed("sentences", "Documents have several sentences", evidence)
    else:
        remedy = "Join related texts into documents, or build examples without pairs by --no-nsp."
        yield Finding("sentences", "amber", "Most documents have one sentence", evidence, remedy)


def skipped_lines(files: StageFiles) -> Iterator[Finding]:
    skipped = files.manifest.get("skipped") or {}
    number = sum(skipped.values())
    share = number / max(number + files.manifest["counts"].get("documents_read", 0), 1)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in skipped.items())
    if share > _SKIPPED:
        remedy = "Correct these lines; --errors strict names the first."
        evidence = f"{counted(number, 'line')} ({share:.1%}): {reasons}."
        yield Finding("skipped", "amber", "Many lines were skipped", evidence, remedy)
    else:
        yield passed("skipped", "Few or no lines were skipped", f"Skipped lines: {number:,}.")


CHECKS = (unknown_tokens, leaking_documents, duplicates, truncation, few_held_out, single_sentences, skipped_lines)
