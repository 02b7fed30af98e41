"""The report of a run that trains on masked tokens: pretraining, adaptation, distillation."""

from collections.abc import Mapping
from typing import Any

from mybert.common.metrics import percent
from mybert.reports.charts import thinned
from mybert.reports.components import Page, Section, Segments, Share, Table, Tile
from mybert.reports.forecast import COLUMNS, compare
from mybert.reports.pages.shared import AXES, facts, log_chart, subtitle, training_section, training_tiles
from mybert.reports.stage_files import StageFiles

_COLUMNS = 8  # evaluations shown for each sentence


def page(files: StageFiles) -> Page:
    _, constant = files.scores
    accuracies = {"mlm_accuracy": "Masked-token accuracy", "nsp_accuracy": "Next-sentence accuracy"}
    charts = [
        log_chart(
            title, files.log, {f"eval_{name}": "held-out"}, constant=constant.get(name), as_share=True, axes=AXES
        )
        for name, title in accuracies.items()
    ]
    losses = {
        "Masked-token loss": {"mlm_loss": "training", "eval_mlm_loss": "held-out"},
        "Next-sentence loss": {"nsp_loss": "training", "eval_nsp_loss": "held-out"},
    }
    sections = [
        _adaptation(files.results.get("adaptation") or {}),
        _forecast(files),
        training_section(files, losses, *charts),
        _samples(files),
        _tokens(files),
        _neighbours(files),
    ]
    title = {"adapt": "Adaptation", "distill": "Distillation"}.get(files.stage, "Pretraining")
    return Page(f"{title} report", subtitle(files), _tiles(files), sections, facts(files), _summary(files))


def _summary(files: StageFiles) -> str:
    """What the model has learned, in words."""
    metrics, constant = files.scores
    texts = []
    if (share := metrics.get("mlm_accuracy")) is not None:
        texts.append(f"The model predicts {percent(share)} of the masked tokens of held-out text correctly")
        if (base := constant.get("mlm_accuracy")) is not None:
            texts[-1] += f"; always predicting the most frequent token is correct for {percent(base)}"
        if (teacher := metrics.get("teacher_mlm_accuracy")) is not None:
            texts[-1] += f"; its teacher predicts {percent(teacher)}"
    if (share := metrics.get("nsp_accuracy")) is not None:
        texts.append(f"For {percent(share)} of the pairs, it predicts correctly whether B follows A")
        if (base := constant.get("nsp_accuracy")) is not None:
            texts[-1] += f"; the best constant prediction is correct for {percent(base)}"
    return " ".join(f"{text}." for text in texts)


def _tiles(files: StageFiles) -> list[Tile]:
    metrics, constant = files.scores
    tiles = [
        Tile(
            title,
            percent(metrics[name]),
            f"on held-out text; best constant prediction {percent(constant[name])}" if name in constant else "",
        )
        for name, title in (("mlm_accuracy", "Masked-token accuracy"), ("nsp_accuracy", "Next-sentence accuracy"))
        if name in metrics
    ]
    if "perplexity" in metrics and metrics["perplexity"] is not None:
        note = "on held-out text; the model is as uncertain as in a choice among so many equally likely tokens"
        tiles.append(Tile("Perplexity", f"{metrics['perplexity']:,.4g}", note))
    return [*tiles, *training_tiles(files.results)]


def _forecast(files: StageFiles) -> Section:
    """Plan and result of a run with a time budget."""
    rows = compare(files.results)
    note = "Expected losses and accuracies have 95% intervals."
    return Section("Forecast and result", [Table("Forecast and result", COLUMNS, rows, note)] if rows else [])


def _samples(files: StageFiles) -> Section | None:
    """The same sentences and pairs at every evaluation."""
    if not files.samples:
        return None
    shown = thinned(files.samples, _COLUMNS)
    steps = [f"step {sample['step']:,}" for sample in shown]
    tables = []
    words = shown[-1].get("words") or []
    if words:
        rows = [
            (
                Segments([("", word["before"]), ("mark", word["word"]), ("", word["after"])]),
                *(_asked(sample["words"][number]) for sample in shown),
                ", ".join(f"“{token}” {share:.1%}" for token, share in word["guesses"]),
            )
            for number, word in enumerate(words)
        ]
        note = "The marked word is hidden from the model. Each cell has the probability of the marked word and, if it "
        note += "differs, the model's prediction."
        tables.append(Table("Masked words", ["sentence", *steps, "most likely at the end"], rows, note))
    pairs = shown[-1].get("pairs") or []
    if pairs:
        rows = [
            (
                Segments([("a", pair["a"]), ("b", pair["b"])]),
                "next sentence" if pair["is_next"] else "random",
                *(Share(sample["pairs"][number]["probability"]) for sample in shown),
            )
            for number, pair in enumerate(pairs)
        ]
        note = "The probability of what B is."
        tables.append(Table("Pairs", ["first and second segment", "B is", *steps], rows, note))
    intro = "The same held-out sentences at every evaluation."
    return Section("Predictions during training", tables, intro)


def _asked(word: dict[str, Any]) -> Share:
    predicted = word["guesses"][0][0] if word["guesses"] else ""
    share = word["probability"]
    return Share(share, f"{share:.1%}" if predicted == word["word"] else f"{share:.1%}, predicted “{predicted}”")


def _adaptation(adaptation: Mapping[str, Any]) -> Section:
    """Scores before and after the adaptation, and the words that it added."""
    tables = []
    scores = [
        (f"{text}: {name.replace('_', ' ')}", before, when["after"].get(name))
        for text, when in (adaptation.get("held_out") or {}).items()
        if {"before", "after"} <= when.keys()
        for name, before in when["before"].items()
    ]
    if scores:
        tables.append(Table("Held-out text", ["text and score", "before", "after"], scores))
    if words := adaptation.get("new_words"):
        rows = [(word["piece"], " ".join(word["pieces"]), word["saved"]) for word in words]
        tables.append(Table("New words", ["word", "former word pieces", "tokens saved"], rows))
    if nearest := adaptation.get("nearest_tokens"):
        rows = [
            (word, " ".join(near.get("before", ())), " ".join(near.get("after", ()))) for word, near in nearest.items()
        ]
        columns = ["word", "before training", "after training"]
        tables.append(Table("Nearest tokens of new words", columns, rows))
    return Section("Adaptation", tables)


def _tokens(files: StageFiles) -> Section:
    tables = []
    for name, title, column in (
        ("accuracy_by_frequency", "By frequency of the token", "tokens ranked by frequency"),
        ("accuracy_by_kind", "By kind of token", "kind"),
    ):
        if groups := files.results.get(name):
            rows = [(row["name"], row["tokens"], Share(row["accuracy"])) for row in groups]
            tables.append(Table(title, [column, "masked tokens", "accuracy"], rows))
    return Section("Which tokens it gets right", tables, "On the held-out documents.")


def _neighbours(files: StageFiles) -> Section | None:
    neighbours = files.results.get("neighbours")
    if not neighbours:
        return None
    rows = [(word, ", ".join(f"{other} {cosine:.2f}" for other, cosine in near)) for word, near in neighbours.items()]
    table = Table("Nearest neighbours", ["word", "nearest words and their cosine similarity"], rows)
    return Section("Nearest neighbours of frequent words", [table], "By the input embeddings of the finished model.")
