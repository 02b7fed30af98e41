"""The report of a run that trains on masked tokens: pretraining, adaptation, distillation."""

from collections.abc import Mapping
from typing import Any

from mybert.common.metrics import percent
from mybert.reports.charts import thinned
from mybert.reports.components import Page, Section, Segments, Share, Table, Tile
from mybert.reports.forecast import COLUMNS, compare
from mybert.reports.pages.shared import AXES, facts, log_chart, subtitle, training_section, training_tiles
from mybert.reports.stage_files import StageFiles

_ACCURACIES = {"mlm_accuracy": "Masked-token accuracy", "nsp_accuracy": "Next-sentence accuracy"}
_COLUMNS = 8  # evaluations shown for each sentence


def page(files: StageFiles) -> Page:
    _, constant = files.scores
    options: dict[str, Any] = {"as_share": True, "axes": AXES}
    charts = [
        log_chart(title, files.log, {f"eval_{name}": "held-out"}, constant=constant.get(name), **options)
        for name, title in _ACCURACIES.items()
    ]
    losses = {
        "Masked-token loss": {"mlm_loss": "training", "eval_mlm_loss": "held-out"},
        "Next-sentence loss": {"nsp_loss": "training", "eval_nsp_loss": "held-out"},
    }
    rows, note = compare(files.results), "Expected losses and accuracies have 95% intervals."
    sections = [
        _adaptation(files.results.get("adaptation") or {}),
        Section("Forecast and result", [Table("Forecast and result", COLUMNS, rows, note) if rows else None]),
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
    tiles = []
    for name in filter(metrics.__contains__, _ACCURACIES):
        note = f"on held-out text; best constant prediction {percent(constant[name])}" if name in constant else ""
        tiles.append(Tile(_ACCURACIES[name], percent(metrics[name]), note))
    if metrics.get("perplexity") is not None:
        note = "on held-out text; the model is as uncertain as in a choice among so many equally likely tokens"
        tiles.append(Tile("Perplexity", f"{metrics['perplexity']:,.4g}", note))
    return [*tiles, *training_tiles(files.results)]


def _samples(files: StageFiles) -> Section | None:
    """The same sentences and pairs at every evaluation."""
    if not files.samples:
        return None
    shown = thinned(files.samples, _COLUMNS)
    steps = [f"step {sample['step']:,}" for sample in shown]
    tables = []
    words = shown[-1].get("words") or []
    if words:
        rows = []
        for number, word in enumerate(words):
            sentence = Segments([("", word["before"]), ("mark", word["word"]), ("", word["after"])])
            guesses = ", ".join(f"“{token}” {share:.1%}" for token, share in word["guesses"])
            rows.append((sentence, *(_asked(sample["words"][number]) for sample in shown), guesses))
        note = "The marked word is hidden from the model. Each cell has the probability of the marked word and, if it "
        note += "differs, the model's prediction."
        tables.append(Table("Masked words", ["sentence", *steps, "most likely at the end"], rows, note))
    pairs = shown[-1].get("pairs") or []
    if pairs:
        rows = []
        for number, pair in enumerate(pairs):
            segments = Segments([("a", pair["a"]), ("b", pair["b"])])
            shares = (Share(sample["pairs"][number]["probability"]) for sample in shown)
            rows.append((segments, "next sentence" if pair["is_next"] else "random", *shares))
        columns = ["first and second segment", "B is", *steps]
        tables.append(Table("Pairs", columns, rows, "The probability of what B is."))
    return Section("Predictions during training", tables, "The same held-out sentences at every evaluation.")


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
        rows = [(word, *(" ".join(near.get(x, ())) for x in ("before", "after"))) for word, near in nearest.items()]
        columns = ["word", "before training", "after training"]
        tables.append(Table("Nearest tokens of new words", columns, rows))
    return Section("Adaptation", tables)


def _tokens(files: StageFiles) -> Section:
    tables = []
    titles = {"frequency": ("frequency of the token", "tokens ranked by frequency"), "kind": ("kind of token", "kind")}
    for name, (title, column) in titles.items():
        if groups := files.results.get(f"accuracy_by_{name}"):
            rows = [(row["name"], row["tokens"], Share(row["accuracy"])) for row in groups]
            tables.append(Table(f"By {title}", [column, "masked tokens", "accuracy"], rows))
    return Section("Which tokens it gets right", tables, "On the held-out documents.")


def _neighbours(files: StageFiles) -> Section | None:
    neighbours = files.results.get("neighbours")
    if not neighbours:
        return None
    rows = [(word, ", ".join(f"{other} {cosine:.2f}" for other, cosine in near)) for word, near in neighbours.items()]
    table = Table("Nearest neighbours", ["word", "nearest words and their cosine similarity"], rows)
    return Section("Nearest neighbours of frequent words", [table], "By the input embeddings of the finished model.")
