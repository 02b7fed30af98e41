"""What an index takes and gives: documents and hits."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mybert.artifacts.manifest import json_line
from mybert.common.errors import UserError, short
from mybert.common.json_io import unwritable
from mybert.io.record_formats import rename_taken
from mybert.retrieval.collections import id_of, title_of
from mybert.rows.labels import is_missing


class UnusableQuery(UserError):
    """What is asked of an index has no answer; other errors are of the index and its models."""


@dataclass(frozen=True)
class IndexedDocument:
    """A document to be indexed. `columns` are kept, and searches can be filtered by them."""

    id: str
    text: str
    title: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)

    def digest(self) -> bytes:
        """A hash of everything but the id."""
        content = json.dumps([self.title, self.text, self.columns], sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.blake2b(content.encode(errors="surrogatepass"), digest_size=16).digest()

    def stored(self) -> dict[str, Any]:
        """The columns of documents.arrow in a segment."""
        columns = json_line(dict(self.columns)).rstrip("\n")
        return {"id": self.id, "title": self.title, "digest": self.digest(), "columns": columns}


@dataclass
class Hit:
    """A passage that was found.

    Attributes:
        id, title, columns: of its document.
        start, end: `text` is `document[start:end]`.
        score: the sum of `combined` (hybrid), the cosine (dense), BM25 (words), or `reranked`.
        highlights: start and end in `text` of each word that is also in the query.
    """

    id: str
    title: str
    text: str
    start: int
    end: int
    score: float
    highlights: list[tuple[int, int]]
    columns: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The hit as one flat dictionary."""
        own = dataclasses.asdict(self)
        del own["columns"]
        return own | rename_taken(self.columns, own)


def as_document(given: IndexedDocument | Mapping[str, Any]) -> IndexedDocument:
    """A document that may be given as a dictionary of its columns."""
    if isinstance(given, IndexedDocument):
        return given
    columns = dict(given) if isinstance(given, Mapping) else {}
    key, text, title = (columns.pop(name, None) for name in ("id", "text", "title"))
    if is_missing(key) or not isinstance(text, str):
        raise UserError(f"a document needs an id and a text, found {short(given)}")
    if problem := unwritable(dict(given)):
        raise UserError(f"the document {short(key)} cannot be stored ({problem}); correct it")
    return IndexedDocument(id_of(key), text, title_of(title), columns)
