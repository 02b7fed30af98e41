"""CoNLL files: one word per line in columns, a blank line after each sentence."""

from pathlib import Path

from datasets import Dataset, Features, List, Value

from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.io.files import open_file

_DOCUMENT = "-DOCSTART-"


def read_columns(path: Path) -> tuple[Dataset, list[list[int]]]:
    """
    Returns:
        A row for each sentence: `tokens`, the first column, and `tags`, the last column if there are two or more.
        Lines that begin a document are dropped. And the line of each word of each sentence, from 0.
    """
    sentences, width = [[]], None
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UserError(f"{path}, line {number}: not UTF-8 ({error.reason}); save it as UTF-8") from error
            fields = _fields(text)
            if not fields or fields[0] == _DOCUMENT:
                sentences.append([])
                continue
            width = width or len(fields)
            if len(fields) != width or not fields[0] or not fields[-1]:
                found = f"found {sum(map(bool, fields))}: {short(text)}"
                raise UserError(
                    f"{path}, line {number}: expected {width} columns as in the first line, {found}; write one word "
                    "per line, and a blank line after a sentence"
                )
            sentences[-1].append((fields[0], fields[-1], number - 1))
    sentences = list(filter(None, sentences))
    columns = {"tokens": [[word for word, _, _ in words] for words in sentences]}
    if width is None or width > 1:
        columns["tags"] = [[tag for _, tag, _ in words] for words in sentences]
    rows = Dataset.from_dict(columns, Features({name: List(Value("string")) for name in columns}))
    return rows, [[line for _, _, line in words] for words in sentences]


def _fields(text: str) -> list[str]:
    """The columns of a line, separated by tabs or spaces. Other white space may be part of a word."""
    if "\t" in text.strip(" \t"):
        return [field.strip(" ") for field in text.split("\t")]
    return [field for field in text.replace("\t", " ").split(" ") if field]
