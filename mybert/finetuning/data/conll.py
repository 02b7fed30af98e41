"""Sentences in columns, as the CoNLL shared tasks have them: a word a line, a blank line after each sentence."""

from pathlib import Path

from datasets import Dataset, Features, List, Value

from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.io.files import open_file

_DOCUMENT = "-DOCSTART-"


def read_columns(path: Path) -> Dataset:
    """
    Returns:
        A row for each sentence: `tokens`, the first column, and `tags`, the last, if there are two or more. Lines
        that begin documents are dropped.

    Raises:
        UserError: a line is not UTF-8 or has another number of columns than the first; file and line are named.
    """
    sentences, sentence, width = [], [], None
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UserError(f"{path}, line {number}: not UTF-8 ({error.reason}); save it as UTF-8") from error
            tabbed = "\t" in text.strip(" \t")
            fields = [field.strip(" ") for field in text.split("\t")] if tabbed else text.replace("\t", " ").split(" ")
            fields = fields if tabbed else [field for field in fields if field]  # other blanks may be part of a word
            if not fields or fields[0] == _DOCUMENT:
                sentences.append(sentence)
                sentence = []
                continue
            width = width or len(fields)
            if len(fields) != width or not fields[0] or not fields[-1]:
                filled = sum(map(bool, fields))
                raise UserError(
                    f"{path}, line {number}: expected {width} columns as in the first line, found {filled}: "
                    f"{short(text)}; a sentence has a word a line and ends with a blank line"
                )
            sentence.append((fields[0], fields[-1]))
    rows = [one for one in [*sentences, sentence] if one]
    columns = {"tokens": [[word for word, _ in row] for row in rows]}
    if width is None or width > 1:
        columns["tags"] = [[tag for _, tag in row] for row in rows]
    return Dataset.from_dict(columns, Features({name: List(Value("string")) for name in columns}))
