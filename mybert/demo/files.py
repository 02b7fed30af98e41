"""Files that a user of the page chooses: rows that a head answers one by one, and texts to search."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mybert.common.errors import UserError
from mybert.common.quantities import counted
from mybert.demo.heads import Head
from mybert.inference.prediction_files import write_cells
from mybert.io.documents import Document, read_documents
from mybert.io.files import PLAIN_TEXT
from mybert.io.record_formats import READERS

TEXT_FILES = [*PLAIN_TEXT, *READERS]


def read_texts(path: str, column: str) -> tuple[list[Document], str]:
    """The texts of a file, and a line about what was skipped; each line of a plain text is a text."""
    skipped: Counter[str] = Counter()
    documents = list(
        read_documents(
            [path], text_column=column, errors="skip", plain_text="line", skipped=skipped, with_other_columns=True
        )
    )
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in skipped.items())
    if not documents:
        raise UserError(f"the file holds no text{f' ({reasons})' if reasons else ''}")
    return documents, f"{counted(len(documents), 'text')}{f'; skipped {reasons}' if reasons else ''}"


def answer_file(head: Head, path: str, output: Path) -> None:
    """Answers each row of a file and writes a CSV file: the prediction, its probability, an error, and the inputs.

    Formulas get an apostrophe, since the file is opened in a spreadsheet more often than not.
    """
    first, *others = head.columns_of_files
    documents, _ = read_texts(path, first)

    def rows() -> Iterator[list[Any]]:
        yield ["line", "prediction", "probability", "error", *(f"input.{name}" for name in (first, *others))]
        for document in documents:
            texts = [document.text, *(document.others.get(name) for name in others)]
            yield [document.line, *_answer(head, texts), *texts]

    write_cells(output, rows(), spreadsheet_safe=True)


def _answer(head: Head, texts: list[Any]) -> tuple[str, float | str, str]:
    """Prediction, probability and error. Several masks have their words and the product of their probabilities."""
    missing = [name for name, text in zip(head.columns_of_files, texts, strict=True) if not isinstance(text, str)]
    if missing:
        return "", "", f"no text in the column {missing[0]!r}"
    try:
        answer = head.answer(*texts)
    except UserError as error:
        return "", "", str(error)
    if not head.columns:
        probabilities: Any = answer.result
        name = max(probabilities, key=probabilities.__getitem__)
        return name, round(probabilities[name], 4), ""
    best = {mask: (word, share) for mask, word, share in reversed(answer.rows)}  # the most probable word is the first
    probability = 1.0
    for _, share in best.values():
        probability *= share
    return " ".join(best[mask][0] for mask in sorted(best)), round(probability, 4), ""
