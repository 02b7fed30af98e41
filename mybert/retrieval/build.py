"""`mybert index`: builds and changes an index."""

import functools
import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mybert.artifacts.jobs import describe_rows_job, finished_run, work_folder
from mybert.artifacts.manifest import MANIFEST, files_of
from mybert.common.errors import UserError, short
from mybert.common.json_io import unwritable
from mybert.common.progress import Bar
from mybert.common.quantities import counted, with_unit
from mybert.common.tables import print_table
from mybert.io.documents import Document, Problems, read_documents
from mybert.retrieval.balance import LARGEST
from mybert.retrieval.collections import joined, with_ids_and_titles
from mybert.retrieval.index import Index
from mybert.retrieval.records import IndexedDocument
from mybert.retrieval.settings import IndexSettings

_SAMPLE = 500  # documents that show the language, and how much BM25 counts

logger = logging.getLogger(__name__)


def build_index(settings: IndexSettings) -> Path:
    """Indexes documents, or changes an index, and prints a summary.

    Returns:
        The folder of the index. With `resume` or `add`, what a killed run has written is not computed again.

    Raises:
        UserError: model, documents, index or a setting cannot be used.
    """
    began, output = time.monotonic(), Path(settings.output)
    options = {name: getattr(settings, name) for name in ("device", "dtype", "max_tokens_per_batch")}
    skipped: Counter[str] = Counter()
    if settings.changes:
        index = Index(output, model=settings.model, **options)
        index.encoder  # noqa: B018  # the model is checked before anything is deleted
        counts = {"deleted": index.delete(settings.delete, settings.errors)} if settings.delete else {}
        counts |= _add(index, settings, skipped) if settings.inputs else {}
    else:
        job = describe_rows_job(settings)
        if finished_run(settings, job):
            return output
        staged = work_folder(settings, job, lambda scratch: (scratch.parent / MANIFEST).is_file(), stage="index")
        with staged as (folder, _):
            if (folder / MANIFEST).is_file():
                index = Index(folder, **options)
            else:
                sample = list(itertools.islice(_documents(settings, Counter()), _SAMPLE))
                if not sample:
                    raise UserError("the inputs hold no document with a text; check them and --text-column")
                print(f"choosing the weight of BM25 from {counted(len(sample), 'document')}", flush=True)
                index = Index.create(folder, settings, sample, **options)
            tokens, overlap = (index.store.manifest[name] for name in ("passage_tokens", "overlap"))
            if tokens < settings.passage_tokens:
                print(
                    f"the model reads {tokens} tokens of a passage, not {settings.passage_tokens}: passages have at "
                    f"most {tokens} tokens, of which at most {overlap} overlap"
                )
            counts = _add(index, settings, skipped)
            index.finish(job.digest)
            del index  # Windows renames no folder with mapped files
        index = Index(output)
    rows: list[tuple[str, Any]] = list(counts.items())
    rows += [(f"skipped: {reason}", number) for reason, number in sorted(skipped.items())]
    rows += [("documents in the index", len(index)), ("passages in the index", index.passages)]
    rows.append((f"weight of BM25 in hybrid scores, 0 to {LARGEST:g}", f"{index.store.manifest['words_weight']:g}"))
    size = sum(path.stat().st_size for path in files_of(str(output)))
    print_table("Index", [*rows, ("size", with_unit(size, "B")), ("seconds", time.monotonic() - began)])
    return output


def _add(index: Index, settings: IndexSettings, skipped: Counter[str]) -> dict[str, int]:
    texts: set[str] = set()

    def watched() -> Iterator[IndexedDocument]:
        for document in _documents(settings, skipped):
            if len(texts) < 2:
                texts.add(document.text)
            yield document

    with Bar(desc="indexing", unit="documents", leave=False) as bar:
        counts = index.add(watched(), bar.update)
    if len(texts) == 1 and sum(counts[name] for name in ("added", "replaced", "unchanged")) > 1:
        logger.warning("all documents have the same text, so a search cannot tell them apart; check the inputs")
    return counts


def _documents(settings: IndexSettings, skipped: Counter[str]) -> Iterator[IndexedDocument]:
    """The documents of the inputs, in order. Their ids are a column such as `id`, or where they are in the inputs."""
    problems, seen = Problems(settings.errors, skipped), set()
    documents: Iterable[Document] = read_documents(
        settings.inputs or [],
        text_column=settings.text_column,
        errors=settings.errors,
        plain_text="file",
        skipped=skipped,
        with_other_columns=True,
        with_line_ends=True,  # offsets are those of the text as the user has it
    )
    given = settings.given_columns()
    for document, key, title, columns in with_ids_and_titles(documents, given):
        report = functools.partial(problems.report, document.source, document.place)
        if document.unit == "file":
            key = document.source
        elif key is None and "id" not in given:
            key = f"{document.source}:{document.line}"
        if key is None:
            report(f"{given['id']!r} is empty")
        elif not joined(title, document.text).strip():
            report("the document is empty")
        elif problem := unwritable({"id": key, **document.others}):
            report("a column cannot be stored", problem)
        elif key in seen:
            report("the id is given twice", f"found {short(key)}; --columns id=COLUMN names another column")
        else:
            seen.add(key)
            yield IndexedDocument(key, document.text, title, columns)
