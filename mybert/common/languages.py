"""Languages: their codes, and how their text is normalised."""

import functools
import re
import unicodedata

# ISO 639-1. sentencex accepts any word and falls back to English rules, for Japanese named "jp" too.
_TWO_LETTER_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee "
    "el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is "
    "it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms "
    "mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si "
    "sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh "
    "yi yo za zh zu"
)

MANY_MARKS = 0.005
"""Share of characters that are removed as marks, above which words are confused; German loses 0.012."""
SOME_UNKNOWN, MANY_UNKNOWN = 0.01, 0.05
"""Shares of [UNK] tokens from which a vocabulary fits a text poorly, or not."""
FORMATS = "\u00ad\u200b-\u200d\u2060"
"""Characters within words that are not seen (soft hyphen, joiners, word break), for a regular expression."""
LANGUAGES = "an ISO 639 code such as en, ja or zh"


def is_language(code: str) -> bool:
    """Whether `code` is an ISO 639 code of two or three letters, with optional subtags as in `zh-hant`."""
    language, *subtags = code.split("-")
    known = language in _TWO_LETTER_CODES.split() or bool(re.fullmatch("[a-z]{3}", language))
    return known and all(re.fullmatch("[a-z0-9]+", subtag) for subtag in subtags)


def normalization(code: str, uncased: bool | None, strip_accents: bool | None) -> tuple[bool, bool | None]:
    """`do_lower_case` and `strip_accents` of a tokenizer for a language; None stands for the default.

    English is lower-cased and, if it is, its accents are removed, as in the original BERT. In other languages, case
    and marks tell words apart: *schon* and *schön*, *Reich* and *reich*, में and मैं.
    """
    is_english = code.split("-")[0] in ("en", "eng")
    lower_case = is_english if uncased is None else uncased
    return lower_case, False if strip_accents is None and not is_english else strip_accents


@functools.cache
def marks() -> str:
    """The combining marks, and the format characters within words (joiners, soft hyphen), for a regular expression.

    `\\w` leaves them out, so that it splits the words of Hindi and Thai at their vowels.
    """
    ranges: list[list[str]] = []
    for mark in (c for c in map(chr, range(0xA0, 0x20000)) if unicodedata.category(c)[0] == "M"):
        if ranges and ord(mark) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = mark
        else:
            ranges.append([mark, mark])
    return "".join(f"{first}-{last}" for first, last in ranges) + FORMATS  # re tests single ones above U+FFFF slowly
