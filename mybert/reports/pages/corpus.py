"""The report of a corpus."""

from mybert.common.metrics import percent
from mybert.common.quantities import counted
from mybert.reports.charts import bar_chart
from mybert.reports.checks.corpus import removes_duplicates
from mybert.reports.components import Page, Section, Segments, Share, Table, Tile
from mybert.reports.pages.shared import facts, subtitle
from mybert.reports.stage_files import StageFiles

_BARS = 40


def page(files: StageFiles) -> Page:
    sections = [_lengths(files), _tokens(files), _examples(files), _documents(files)]
    return Page("Corpus report", subtitle(files), _tiles(files), sections, facts(files), _summary(files))


def _summary(files: StageFiles) -> str:
    counts, skipped = files.manifest["counts"], sum((files.manifest.get("skipped") or {}).values())
    left = counts["documents_empty"] + sum(counts["documents_filtered"].values()) + counts["documents_near_duplicate"]
    left += counts["documents_duplicate"] if removes_duplicates(files) else 0
    examples = counted(counts["examples_training"], "training example")
    text = f"{counted(counts['documents'], 'document')} became {examples}."
    if counts.get("documents_held_out"):
        text += f" Held out for evaluation: {counted(counts['documents_held_out'], 'document')}."
    parts = [counted(left, "document")] * (left > 0)
    parts += [f"{counted(skipped, 'line')} that could not be read"] * (skipped > 0)
    if parts:
        text += f" Left out: {' and '.join(parts)}."
    return text


def _tiles(files: StageFiles) -> list[Tile]:
    counts, statistics, results = files.manifest["counts"], files.manifest["statistics"], files.results
    sentences, evaluated = counts["sentences"] / max(counts["documents"], 1), counts.get("examples_validation", 0)
    tiles = [
        Tile("Documents", f"{counts['documents']:,}", f"{counts.get('documents_held_out', 0):,} held out"),
        Tile("Sentences", f"{counts['sentences']:,}", f"{sentences:.3g} in a document"),
        Tile("Tokens", f"{counts['tokens']:,}", f"{percent(statistics['unknown_rate'])} unknown"),
        Tile("Training examples", f"{counts['examples_training']:,}", f"{evaluated:,} for evaluation"),
    ]
    if "tokens_per_word" in results:
        note = f"{results['split_words']:.1%} of the words are split"
        tiles.append(Tile("Tokens in a word", f"{results['tokens_per_word']:.3g}", note))
    return tiles


def _lengths(files: StageFiles) -> Section:
    charts = []
    for part, counts in (files.results.get("length_counts") or {}).items():
        bars = _binned({int(length): number for length, number in counts.items()})
        charts.append(bar_chart(f"Tokens of {part} examples", ("tokens", "examples"), bars))
    for name, title, unit in (
        ("sentence_counts", "Sentences in a document", "sentences"),
        ("document_tokens", "Tokens of a document", "tokens"),
    ):
        if histogram := files.results.get(name):
            charts.append(bar_chart(title, (unit, "documents"), histogram, _sampled(files)))
    return Section("Lengths", charts)


def _binned(counts: dict[int, int]) -> dict[str, int]:
    """Counts of at most `_BARS` equally wide ranges of length, by their names."""
    if not counts:
        return {}
    low, high = min(counts), max(counts)
    width = max(1, -(-(high - low + 1) // _BARS))
    bars = [0] * ((high - low) // width + 1)
    for length, number in counts.items():
        bars[(length - low) // width] += number
    ranges = [(start, min(start + width - 1, high)) for start in range(low, high + 1, width)]
    names = [str(start) if start == end else f"{start} to {end}" for start, end in ranges]
    return dict(zip(names, bars, strict=True))


def _tokens(files: StageFiles) -> Section:
    tables = []
    for name, title, columns in (
        ("common_tokens", "Most frequent tokens", ["token", "occurrences"]),
        ("common_continuations", "Most frequent parts of words", ["token", "occurrences"]),
        ("unknown_words", "Words that are unknown", ["word", "occurrences"]),
    ):
        if rows := files.results.get(name):
            tables.append(Table(title, columns, rows))
    intro = "Counted in a sample of the documents and of the training examples."
    return Section("Tokens", tables, intro)


def _examples(files: StageFiles) -> Section | None:
    examples = files.results.get("examples")
    if not examples:
        return None
    kinds = {0: "next sentence", 1: "random", None: "-"}
    rows = [(kinds[one["label"]], one["tokens"], Segments([("a", one["a"]), ("b", one["b"])])) for one in examples]
    table = Table("Examples", ["B is", "tokens", "segment A (first colour) and segment B (second colour)"], rows)
    intro = f"{len(rows)} of the training examples, drawn at even distances."
    intro += " The model learns whether B is the next sentence after A." if rows[0][0] != "-" else ""
    return Section("Examples", [table], intro)


def _documents(files: StageFiles) -> Section:
    counts, skipped = files.manifest["counts"], files.manifest.get("skipped") or {}
    rows = [
        ("empty (removed)", counts["documents_empty"]),
        *((f"removed by {name}", number) for name, number in counts["documents_filtered"].items()),
        (f"duplicates ({'removed' if removes_duplicates(files) else 'kept'})", counts["documents_duplicate"]),
        ("near duplicates (removed)", counts["documents_near_duplicate"]),
        ("without tokens", counts.get("documents_without_tokens")),
        ("of one sentence", counts["documents_of_one_sentence"]),
        ("truncated examples", counts["truncated"]),
        ("truncated tokens", counts["tokens_cut"]),
        *((f"skipped lines: {reason}", number) for reason, number in skipped.items()),
    ]
    read = [("documents read", counts["documents_read"])] if "documents_read" in counts else []
    rows = [row for row in rows if row[1]]
    note = "" if rows else "Nothing was left out."
    left = Table("Documents and lines", ["documents or lines", "number"], [*read, *rows], note)
    parts = [
        (
            *(name, counts[f"examples_{name}"], part["tokens"], part["length_mean"]),
            Share(part["is_next_share"]) if "is_next_share" in part else None,
        )
        for name, part in files.manifest["statistics"].items()
        if isinstance(part, dict)
    ]
    columns = ["part", "examples", "tokens", "tokens in an example", "B follows A"]
    return Section("What was left out, and why", [left, Table("Parts", columns, parts)])


def _sampled(files: StageFiles) -> str:
    sampled, total = files.results.get("documents_sampled", 0), files.manifest["counts"]["documents"]
    return "" if sampled >= total else f"Of {sampled:,} of the {total:,} documents, drawn at even distances."
