"""The page of `mybert explain`: coloured words, values, and attention."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from modeling_mybert.entities_mybert import entity_spans, read_tags
from mybert.common.errors import excerpt, warn_once
from mybert.common.quantities import counted, with_unit
from mybert.explanation.settings import INTEGRATED_GRADIENTS, ExplainSettings
from mybert.reports.components import Page, printable
from mybert.reports.prediction_table import packed
from mybert.reports.write import render_template
from mybert.rows.label_columns import rename_label
from mybert.rows.labels import label_name
from mybert.tasks.base import Task
from mybert.tasks.options import TextClassificationOptions
from mybert.tasks.token_classification import TokenClassification

_GAP = 200  # characters of text that the model has not read, between or after words
_TEXT = 1000  # characters of the text of a row without explanations, and of its label
_ATTENTION_BYTES = 3_000_000
_METHODS = {
    INTEGRATED_GRADIENTS: "The value of a word is its part of the change of the score when all words become [MASK] "
    "(integrated gradients): the values of a row add up to the difference of its two scores. What their sum lacks is "
    "the completeness error, which more steps make smaller.",
    "occlusion": "The value of a word is the change of the score when this word alone becomes [MASK].",
}


def write_page(
    path: Path,
    records: Sequence[Mapping[str, Any]],
    attentions: Iterable[tuple[int, list[str], np.ndarray]],
    settings: ExplainSettings,
    numbers: Sequence[tuple[str, Any]],
    task: Task,
) -> None:
    """
    Args:
        records: lines of the JSON output.
        task: names the columns that may hold the reference of a row.
        attentions: index of a record, its tokens, and (layers, heads, S, S) probabilities.
        numbers: name and value of each number about the exactness of the values.
    """
    data = {"rows": [_row(record, task) for record in records], "attention": _attention(attentions)}
    subtitle = f"{Path(settings.model).name} · {', '.join(Path(name).name for name in settings.inputs)}"
    page = render_template(
        "explanations.html",
        folder=Path(__file__).parent / "template",
        page=Page("Explanations", subtitle, [], [], summary=_summary(records)),
        numbers=numbers,
        method=_METHODS[settings.method],
        packed=packed(data),
        has_attention=bool(data["attention"]),
    )
    path.write_text(page, encoding="utf-8", newline="\n", errors="replace")


def _summary(records: Sequence[Mapping[str, Any]]) -> str:
    wrong = sum("error" in record for record in records)
    text = f"{counted(len(records) - wrong, 'prediction')}, each with the words that it depends on."
    return f"{text} {counted(wrong, 'row')} could not be used." if wrong else text


def _row(record: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """What the page shows of a record. The keys are those that `explanations.js` reads."""
    place, unit = next((record[unit], unit) for unit in ("line", "row") if unit in record)
    text = "" if record.get("explanations") else " | ".join(record.get("texts", {}).values())
    return {
        "place": f"{unit} {place}",
        "prediction": printable(_prediction(record)),
        "label": _label(record.get("input"), task),
        "text": printable(text if len(text) <= _TEXT else f"{text[:_TEXT]}…"),
        "note": record.get("note"),
        "explanations": [_explanation(one, record["texts"]) for one in record.get("explanations", ())],
    }


def _prediction(record: Mapping[str, Any]) -> str:
    """The prediction in a few words."""
    if "error" in record:
        return f"error: {record['error']}"
    if "entities" in record:
        return ", ".join(f"{entity['text']} ({entity['type']})" for entity in record["entities"]) or "no entity"
    if "tags" in record:
        return " ".join(record["tags"])
    if "answer" in record:
        return record["answer"] or "no answer"
    if "choice" in record:
        return f"choice {record.get('label', record['choice'])}: {record['text']}"
    if "labels" in record:
        return ", ".join(record["labels"]) or "no label"
    if "label" in record:
        return f"{record['label']} ({record['score']:.1%})"
    name = "similarity" if "similarity" in record else "score"
    return f"{name} {record[name]:.3f}"


def _label(row: Any, task: Task) -> str | None:
    """The reference of a row in a few words; None if the row has none."""
    options = task.options
    given = options.given_columns()
    usual = [name for role, names in task.targets.items() for name in ((given[role],) if role in given else names)]
    value = next((row[name] for name in usual if isinstance(row, Mapping) and row.get(name) is not None), None)
    if value is None:
        return None
    if isinstance(value, Mapping):  # the answers of a question
        value = value.get("text") or "no answer"
    names = options.given_names() if isinstance(options, TextClassificationOptions) else {}
    labels = [label_name(rename_label(one, names)) for one in (value if isinstance(value, list) else [value])]
    if isinstance(task, TokenClassification):
        columns = (given["tokens"],) if "tokens" in given else task.inputs["tokens"]
        words = next((row[name] for name in columns if isinstance(row.get(name), list)), None)
        labels = _entities(words or [], labels)
    return printable(", ".join(dict.fromkeys(labels))[:_TEXT])


def _entities(words: Sequence[Any], tags: list[str]) -> list[str]:
    """The entities of a sentence, as `_prediction` writes them; the tags if these name none."""
    tag_set = read_tags(Counter(tags))
    if tag_set is None or len(words) != len(tags):
        return tags
    spans = entity_spans(tags, tag_set.marks)
    return [f"{' '.join(map(str, words[start:end]))} ({kind})" for start, end, kind in spans] or ["no entity"]


def _explanation(explanation: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Scores, the texts in parts, and the values of words and tokens."""
    words, columns = explanation["words"], dict.fromkeys(word["column"] for word in explanation["words"])
    return {
        "target": printable(explanation["target"]),
        "score": explanation["score"],
        "baseline": explanation["baseline"],
        "error": explanation["completeness_error"],
        "steps": explanation["steps"],
        "texts": [[column, _parts(column, words, texts[column])] for column in columns],
        "words": [round(word["attribution"], 5) for word in words],
        "tokens": [[printable(t["token"]), t["word"], round(t["attribution"], 5)] for t in explanation["tokens"]],
    }


def _parts(column: str, words: Sequence[Mapping[str, Any]], text: str) -> list[list[Any]]:
    """The text as [part, word or None]."""
    parts: list[list[Any]] = []
    end = 0
    for number, word in enumerate(words):
        if word["column"] == column and word["start"] >= end:
            parts += [[_short(text[end : word["start"]]), None], [printable(word["text"]), number]]
            end = word["end"]
    parts.append([_short(text[end:]), None])
    return [part for part in parts if part[0]]


def _short(gap: str) -> str:
    if len(gap) <= _GAP:
        return printable(gap)
    return f"{printable(excerpt(gap, _GAP))}… ({len(gap):,} characters that the model has not read here)"


def _attention(attentions: Iterable[tuple[int, list[str], np.ndarray]]) -> list[dict[str, Any]]:
    """Probabilities as bytes: 255 is 1. Rows for which the page has no room are left out, with a warning."""
    shown, size, left_out = [], 0, 0
    for record, tokens, values in attentions:
        if size + values.size > _ATTENTION_BYTES:
            left_out += 1
            continue
        size += values.size
        content = base64.b64encode((values * 255).round().astype(np.uint8).tobytes()).decode()
        layers, heads = values.shape[:2]
        tokens = [printable(token) for token in tokens]
        shown.append({"record": record, "tokens": tokens, "layers": layers, "heads": heads, "values": content})
    if left_out:
        room = with_unit(_ATTENTION_BYTES, "B")
        warn_once("the page lacks the attention of %s: it has room for %s", counted(left_out, "long row"), room)
    return shown
