"""Languages: their codes, and what combining marks mean in them."""

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
# Languages in scripts without case, in Cyrillic (й is another letter than и), and Vietnamese.
_KEEP_MARKS = (
    "ab am ar as av ba be bg bh bn bo ce cr cu cv dv dz fa gu he hi ii iu ja kk km kn ko ks kv ky lo mk ml mn mr my "
    "ne oj or os pa pi ps ru sa sd si sr ta te tg th ti tt ug uk ur vi yi zh "
    "abk acm aeb ady alt amh apc apd ara arb arq ars ary arz asm ava awa azb bak bel ben bgc bho bih bod bpy brx bua "
    "bul bur che chi chu chv ckb cmn cre div doi dzo fas gez gom guj heb hin hne iii iku inh jpn kan kas kat kaz kbd "
    "khk khm kir kjh kok kom kor krc kum ksw lao lbe lez lzh mac mag mai mal mar mdf mhr mkd mni mnw mon mya myv nan "
    "nep npi nqo oji ori ory oss pan pbt per pes pli pnb prs pus raj rus sah san sat shn sin skr snd srp syr tam tat "
    "tcy tel tgk tha tib tig tir tyv tzm udm uig ukr urd vie wuu xal yid yue zgh zho"
)


MANY_MARKS = 0.005
"""Share of characters that are removed as marks, above which words are confused; German loses 0.012."""
SOME_UNKNOWN, MANY_UNKNOWN = 0.01, 0.05
"""Shares of [UNK] tokens from which a vocabulary fits a text poorly, or not."""
LANGUAGES = "an ISO 639 code such as en, ja or zh"


def is_language(code: str) -> bool:
    """Whether `code` is an ISO 639 code of two or three letters, with optional subtags as in `zh-hant`."""
    language, *subtags = code.split("-")
    known = language in _TWO_LETTER_CODES.split() or bool(re.fullmatch("[a-z]{3}", language))
    return known and all(re.fullmatch("[a-z0-9]+", subtag) for subtag in subtags)


def keeps_marks(code: str) -> bool:
    """Whether letters with and without combining marks are different letters in a language.

    False for languages in Latin or Greek script, except Vietnamese: uncased BERTs of these remove marks. A subtag
    names another script: `uz-cyrl`, `sr-latn`.
    """
    language, *subtags = code.split("-")
    script = next((subtag for subtag in subtags if re.fullmatch("[a-z]{4}", subtag)), None)
    return language in _KEEP_MARKS.split() if script is None else script not in ("latn", "grek")


def strips_accents(given: bool | None, code: str) -> bool | None:
    """`strip_accents` of a tokenizer for a language; None: if it lower-cases, as in the original BERT."""
    return False if given is None and keeps_marks(code) else given


@functools.cache
def marks() -> str:
    """The combining marks, and the format characters within words (joiners, soft hyphen), for a regular expression.

    `\\w` leaves them out, so that it splits the words of Hindi and Thai at their vowels.
    """
    characters = (c for c in map(chr, range(0xA0, 0x20000)) if unicodedata.category(c)[0] == "M")
    return "".join(characters) + "\u00ad\u200b-\u200d\u2060"
