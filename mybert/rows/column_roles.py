"""The columns of a table by their roles, such as text and label: those that are given, else those with usual names."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from mybert.common.errors import nearest_name, short_list
from mybert.io.files import file_format


def choose_columns(
    names: Sequence[str], wanted: Mapping[str, Sequence[str]], given: Mapping[str, str], optional: Collection[str]
) -> tuple[dict[str, str], list[str], dict[str, Sequence[str]]]:
    """
    Args:
        names: the columns of the table.
        wanted: role → usual names of its column; see `usual_columns`.
        given: role → column; or several columns that are read as one, separated by commas.
        optional: roles that may have no column.

    Returns:
        Role → column; the names in `given` that are no columns; and of each role without a column its usual names.
    """
    columns = {role: column for role, column in given.items() if role in wanted}
    absent = []
    for column in dict.fromkeys(columns.values()):
        if column not in names:
            absent += [name for name in map(str.strip, column.split(",")) if name not in names] or [column]
    for role, usual in wanted.items():
        free = usual_columns([name for name in names if name not in columns.values()], usual)
        if role not in columns and free:
            columns[role] = free[0]
    return columns, absent, {role: wanted[role] for role in wanted if role not in columns and role not in optional}


def usual_columns(names: Collection[str], usual: Iterable[str]) -> list[str]:
    """The columns with usual names, in the order of these; if there are none, those that differ in case only."""
    same = [name for name in usual if name in names]
    return same or [name for one in usual for name in names if name.casefold() == one.casefold()]


def lacking_columns(
    source: str,
    names: Sequence[str],
    absent: Sequence[str],
    unnamed: Mapping[str, Sequence[str]],
    roles: Sequence[str],
) -> str:
    """The message about missing columns.

    Args:
        names: the columns of `source`.
        absent, unnamed: of `choose_columns`.
        roles: the roles whose columns the message asks for.
    """
    lacking = [f"no column {name!r}{nearest_name(name, names)}" for name in absent]
    lacking += [f"no column for {role!r} (looked for {', '.join(tried)})" for role, tried in unnamed.items()]
    message = f"{source} has {' and '.join(lacking)}; there are {short_list(names) or 'none'}"
    if roles:
        message += f"; name {'it' if len(roles) == 1 else 'them'} by --columns "
        message += " ".join(f"{role}=COLUMN" for role in roles)
        if unnamed and file_format(source).kind in (".csv", ".tsv", ".xlsx"):
            message += ", or add a line of names if the file has none"
    return message
