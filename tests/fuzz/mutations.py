"""Malformed input made from valid input: edited bytes, and JSON of another structure.

Every choice is made by a `random.Random`, so that an input is a function of its seed.
"""

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

_EDITS = (0, 1, 1, 1, 1, 2, 2, 3, 5, 8)  # one input in ten stays as valid as it was
_TOKENS = (
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\n", b"\r", b"\r\n", b"\n\n"),
    *(b'"', b"'", b",", b"\t", b"{", b"}", b"[", b"]", b":", b"\\u", b"\\ud800", b"null", b"NaN", b"-", b"1e999"),
    *(b"../../outside", b"/etc/passwd", b"%s%n", b"{{7*7}}", b"!!python/object/apply:os.system [id]", b"-DOCSTART-"),
    *(b"\x1b[2J", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" * 12, b"9" * 5000, b"[" * 5000, b"A" * 20000),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-300, 1e308, float("nan"), float("inf"), -float("inf")),
    *(255, 65536, 2**31, 2**32, -(2**63), 2**63, 2**64, 10**18, 10**400),
    *("", " ", "a", "0", "text", "[MASK]", "\0", "\n", "\ud800", "é", "\u202e", "A" * 20000, "a\nb", "\x1b[31m"),
    *("..", "../../outside", "/etc/passwd", "owner/name", "owner/name--module.Class", "http://localhost:9/x"),
    *("{{7*7}}", "{% include 'x' %}", "---\nlicense: x", "<script>", "](javascript:x)", "|", "@DEEP@", "@DIGITS@"),
    *([], {}, [[]], [None], [0], ["a"], {"": 0}, {"a": {}}, [{}], {"path": "../.."}, {"__class__": "x"}),
)
_RAW = {'"@DEEP@"': "[" * 100000 + "]" * 100000, '"@DIGITS@"': "9" * 5000}  # not supported by json.dumps


def mutated_bytes(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One of `seeds` with some edits."""
    data = random.choice(seeds)
    for _ in range(random.choice(_EDITS)):
        data = _edited(random, data, seeds)
    return data


def _edited(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((1, 1, 2, 4, 8, 64)))
    kind = random.randrange(8)
    if kind == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + random.choice(_TOKENS) + data[at:]
    if kind == 2:
        return data[:at] + random.choice(_TOKENS) + data[end:]
    if kind == 3:
        return data[:at] + data[end:]
    if kind == 4:
        return data[:end] + data[at:end] * random.choice((1, 2, 100)) + data[end:]
    if kind == 5:
        return data[:at]
    if kind == 6:
        other = random.choice(seeds)
        start = random.randrange(len(other) + 1)
        return data[:at] + other[start:] if random.randrange(2) else data[:at] + other[start : start + 64] + data[end:]
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def mutated_json(random: Random, seeds: Sequence[Any]) -> bytes:
    """One of `seeds`, which are JSON values, with some edits of its structure; one in eight has edited bytes too."""
    value = copy.deepcopy(random.choice(seeds))
    for _ in range(random.choice(_EDITS)):
        value = _reshaped(random, value, value)
    text = json.dumps(value)
    for mark, raw in _RAW.items():
        text = text.replace(mark, raw)
    return mutated_bytes(random, [text.encode()]) if random.randrange(8) == 0 else text.encode()


def _reshaped(random: Random, value: Any, whole: Any) -> Any:
    """`value` with one change at a random depth."""
    if isinstance(value, dict | list) and value and random.randrange(5):
        key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        kind = random.randrange(12)
        if kind == 0:
            del value[key]
        elif kind == 1 and isinstance(value, dict):
            value[str(random.choice(_VALUES))] = value.pop(key)
        elif kind == 2 and isinstance(value, list):
            value.append(copy.deepcopy(value[key]))
        elif kind == 3:
            value[key] = random.choice(([value[key]], {"a": value[key]}, str(value[key])[:100]))
        elif kind == 4:
            value[key] = copy.deepcopy(whole)
        else:
            value[key] = _reshaped(random, value[key], whole)
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and random.randrange(2):
        return value + random.choice((-1, 1)) if random.randrange(2) else -value
    return copy.deepcopy(random.choice(_VALUES))
