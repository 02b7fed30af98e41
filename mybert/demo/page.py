"""The page of `mybert demo`, made from the heads of its models with Gradio."""

import contextlib
import html
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read at import

import torch

from mybert.common.errors import UserError, needing
from mybert.common.hub import name_for_others
from mybert.common.quantities import counted
from mybert.demo.files import TEXT_FILES, answer_file, read_texts
from mybert.demo.heads import TITLE, Answer, Head, heads_of
from mybert.explanation.similarity import SimilarityPredictor
from mybert.inference.predict import write_predictions
from mybert.inference.prediction_files import write_table

with needing("demo", "mybert demo"):
    import gradio as gr

_CSS = """
.gradio-container { width: 100% !important; max-width: 72rem !important; margin: 0 auto !important; }
body { --series-1: #2459d6; --series-2: #c2410c; --series-3: #15803d; --series-4: #7c3aed;
  --series-5: #0e7490; }
body.dark { --series-1: #7db0ff; --series-2: #ffb072; --series-3: #7bd69b; --series-4: #c4a5ff; --series-5: #5fd3e6; }
.marked { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.9; padding: 1.7rem 0.5rem 0.5rem; }
.marked .title { display: block; } .marked * ~ .title { margin-top: 1.2rem; }
.marked mark { color: inherit; border-radius: 0.25rem;
  -webkit-box-decoration-break: clone; box-decoration-break: clone;
  background: color-mix(in srgb, var(--tone) calc(0.42 * var(--strength)), transparent);
  border-bottom: 2px solid color-mix(in srgb, var(--tone) var(--strength), transparent); }
.marked mark.down { border-bottom-style: dotted; }
.marked mark b { font-size: 0.72rem; }
footer { display: none !important; }
body:not(.dark) { --button-primary-background-fill: var(--primary-600);
  --button-primary-background-fill-hover: var(--primary-700); }
body:not(.dark) [role="tab"].selected { color: var(--primary-600) !important; }
[aria-label="Empty value"] { visibility: hidden; }
.choose-file .upload-container .wrap { font-size: 0 !important; visibility: hidden; }
.choose-file .upload-container .wrap::after {
  visibility: visible; content: "Click to upload or drop a file"; font-size: 1rem;
}
"""  # of Gradio's colours the contrast is too low for small text; names of empty parts and upload buttons are wrong
_COLOURS = 5  # of labels
_TOP = 10  # texts of a search
_HOUR = 3600  # seconds


def build_page(models: Sequence[str], device: str = "auto") -> gr.Blocks:
    """The page of one or several checkpoints, which are loaded."""
    names = {name: name_for_others(name) for name in models}
    if len(set(names.values())) < len(names):
        names = {name: f"{shown} ({number})" for number, (name, shown) in enumerate(names.items(), 1)}
    groups: dict[tuple[str, ...], dict[str, Head]] = {}
    for name in models:
        for head in heads_of(name, device):
            groups.setdefault((head.title, *head.fields), {})[names[name]] = head
    title = f"MyBERT: {', '.join(names.values())}"
    with gr.Blocks(title=title, analytics_enabled=False, delete_cache=(_HOUR, 24 * _HOUR)) as page:
        gr.Markdown(f"# {', '.join(names.values())}")
        with gr.Tabs():
            for (title, *_), heads in groups.items():
                with gr.Tab(title):
                    if isinstance(next(iter(heads.values())).source, SimilarityPredictor):
                        _search_tab(heads)
                    else:
                        _tab(heads)
    return page


def launch(page: gr.Blocks, host: str, port: int, block: bool = True) -> str:
    """Serves a page; the address."""
    _, address, _ = page.queue(default_concurrency_limit=1).launch(
        server_name=host,
        server_port=port or None,
        prevent_thread_lock=True,
        quiet=True,
        show_error=True,
        share=False,
        ssr_mode=False,
        css=_CSS,
        theme=gr.themes.Default(primary_hue="blue"),
        footer_links=[],
    )
    print(f"the demo is at {address}", flush=True)
    if block:
        page.block_thread()
    return address


def _tab(heads: dict[str, Head]) -> None:
    """Fields, a button, and the answer of each model in a column of its own; at first those of the first example."""
    first = next(iter(heads.values()))
    examples = [list(row) for row in first.examples if len(row) == len(first.fields)]
    texts = examples[0] if examples else [""] * len(first.fields)
    if examples:
        gr.Markdown(f"Write a text, or choose one of the examples below, and press {first.action}.")
    fields = [
        gr.Textbox(text, label=name, lines=lines, max_lines=20)
        for text, (name, lines) in zip(texts, first.fields.items(), strict=True)
    ]
    button = gr.Button(first.action, variant="primary")
    shown, heads_shown = [], []
    with gr.Row():
        for name, head in heads.items():
            with gr.Column(min_width=320):
                if len(heads) > 1:
                    gr.Markdown(f"## {name}")
                answer = None
                with contextlib.suppress(UserError):  # an example that was cut may lack its second choice
                    answer = head.answer(*texts) if examples else None
                components = _components(head, answer)
                shown += [component for component, _ in components]
                heads_shown.append((head, [part for _, part in components]))

    def predict_all(*texts: str) -> Any:
        texts = tuple(map(_plain, texts))
        if not all(text.strip() for text in texts):
            raise _error("Write a text in every field.")
        with _shown_errors():
            answers = [(head.answer(*texts), some) for head, some in heads_shown]
        return _outputs([part(answer) for answer, some in answers for part in some])

    triggers = [button.click, fields[0].submit]
    gr.on(triggers, predict_all, fields, shown, concurrency_id="model", api_name="predict")
    if examples:
        gr.Examples(examples, fields, examples_per_page=5)
    if first.source is not None or first.columns_of_files:
        _file_part(heads)


def _plain(text: str | None) -> str:
    """Surrogate pairs as their characters; half of a pair, which no tokenizer takes, as the replacement character."""
    return (text or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@contextlib.contextmanager
def _shown_errors(path: str = "") -> Iterator[None]:
    """Shows a UserError in the page; `path`, a temporary one, by its name."""
    try:
        yield
    except UserError as error:
        message = str(error).replace(path, Path(path).name) if path else str(error)
        raise _error(message) from error


def _components(head: Head, first: Answer | None) -> list[tuple[Any, Callable[[Answer], Any]]]:
    """The components of an answer, each with the function that takes its value from the answer.

    They show the answer `first`, if there is one.
    """
    components: list[tuple[Any, Callable[[Answer], Any]]] = []

    def add(component: Callable[..., Any], value: Callable[[Answer], Any], **options: Any) -> None:
        components.append((component(value(first) if first else None, **options), value))

    if head.result:
        add(gr.Label, lambda answer: answer.result, label=head.result, num_top_classes=8)
    if head.marked:
        add(
            gr.HTML,
            lambda answer: _marked(answer.marked or (), head.labels),
            label=head.marked,
            show_label=True,
            container=True,
        )
    if head.columns:
        with gr.Accordion("Details", open=False):
            options = {"headers": list(head.columns), "interactive": False, "show_label": False, "wrap": True}
            add(gr.Dataframe, lambda answer: [list(row) for row in answer.rows], **options)
    return components


def _marked(parts: Sequence[tuple[str, Any]], labels: Sequence[str]) -> str:
    """HTML of a marked text, with the colours of reports and of `mybert explain`: blue words raise the score, orange
    ones lower it, and each label has its colour.
    """
    shown = []
    for part, value in parts:
        text = html.escape(part)
        if value is TITLE:
            shown.append(f'<b class="title">{text}</b>')
            continue
        if isinstance(value, float):
            kind, tone, strength = ("up", 1, value) if value > 0 else ("down", 2, -value)
        elif value:
            kind, tone, strength = "label", list(labels).index(value) % _COLOURS + 1 if value in labels else 1, 1.0
            text += f"&nbsp;<b>{html.escape(value)}</b>"
        else:
            shown.append(text)
            continue
        style = f"--tone: var(--series-{tone}); --strength: {strength:.0%}"
        shown.append(f'<mark class="{kind}" style="{style}">{text}</mark>')
    return f'<div class="marked" dir="auto">{"".join(shown)}</div>'


def _error(message: str) -> gr.Error:
    return gr.Error(message, duration=8, print_exception=False)


def _file_part(heads: dict[str, Head]) -> None:
    """Predictions of a file."""
    with gr.Accordion("Predict a file", open=False):
        columns = next(iter(heads.values())).columns_of_files
        named = " and ".join(columns) if columns else "those of the training rows"
        gr.Markdown(f"The columns are {named}. The download has a prediction for each row.")
        given = gr.File(label="Rows", file_types=TEXT_FILES, elem_classes="choose-file")
        button = gr.Button("Predict the file")
        result = gr.File(label="Predictions", file_count="multiple")

    def predict_file(path: str | None) -> Iterator[list[str]]:
        if not path:
            raise _error("Choose a file.")
        with tempfile.TemporaryDirectory(prefix="mybert-demo-") as folder:
            names = [f"{Path(path).stem}-{number}-{Path(name).name}.csv" for number, name in enumerate(heads, 1)]
            made = [Path(folder) / name for name in names]
            for output, head in zip(made, heads.values(), strict=True):
                with _shown_errors(path):
                    if head.source is None:
                        answer_file(head, path, output)
                    else:
                        records = output.with_suffix(".jsonl")
                        with records.open("w", encoding="utf-8", newline="\n") as file:
                            write_predictions([path], "skip", head.source, file)
                        write_table(records, output, spreadsheet_safe=True)
            yield list(map(str, made))  # gradio copies the files before it resumes the generator

    button.click(predict_file, given, result, concurrency_id="model", api_name="predict_file")


def _search_tab(heads: dict[str, Head]) -> None:
    """A search in a file of one's own, by vectors that are computed when it is chosen."""
    predictors = [head.source for head in heads.values() if isinstance(head.source, SimilarityPredictor)]
    gr.Markdown("Choose a file: lines of text, or a table. The texts that are most similar to a query are shown.")
    given, state = gr.File(label="Texts", file_types=TEXT_FILES, elem_classes="choose-file"), gr.State()
    column = gr.Textbox(label="Column of the texts in a table", value="text")
    note = gr.Markdown()
    query = gr.Textbox(label="Query")
    button = gr.Button("Search", variant="primary")
    with gr.Row():
        tables = [gr.Dataframe(headers=["score", "text"], label=name, interactive=False, wrap=True) for name in heads]

    def read(path: str | None, name: str) -> tuple[Any, str]:
        if not path:
            return None, ""
        with _shown_errors(path):
            documents, line = read_texts(path, name)
            texts = [document.text for document in documents]
            vectors = [_vectors(one, texts, one.embedder.modules.document_prompt()) for one in predictors]
            longer = max(one.embedder.truncated for one in predictors)
            line += f"; the beginnings of {counted(longer, 'longer text')} are read" if longer else ""
            return (texts, vectors), line

    def search(texts: tuple[list[str], list[torch.Tensor]] | None, words: str) -> Any:
        words = _plain(words)
        if not texts or not words.strip():
            raise _error("Choose a file and write a query.")
        lines, vectors = texts
        results = []
        for predictor, some in zip(predictors, vectors, strict=True):
            prompt = "query" if predictor.embedder.modules.query_prompt() else None
            top = (some @ _vectors(predictor, [words], prompt)[0]).topk(min(_TOP, len(lines)))
            results.append([[round(score, 4), lines[i]] for score, i in zip(*(t.tolist() for t in top), strict=True)])
        return _outputs(results)

    gr.on([given.change, column.submit], read, [given, column], [state, note], concurrency_id="model")
    triggers = [button.click, query.submit]
    gr.on(triggers, search, [state, query], tables, concurrency_id="model", api_name="search")


def _outputs(values: list[Any]) -> Any:
    """Values of components as Gradio takes them: a list, or the value of the only one."""
    return values if len(values) > 1 else values[0]


def _vectors(predictor: SimilarityPredictor, texts: list[str], prompt_name: str | None) -> torch.Tensor:
    predictor.embedder.truncated = 0
    vectors = predictor.embedder.texts(texts, prompt_name=prompt_name)
    return torch.nn.functional.normalize(torch.from_numpy(vectors))
