"""Tables at the end of `mybert adapt`."""

from mybert.common.quantities import counted
from mybert.common.tables import print_table

_SHOWN = 50
_SCORES = {
    "tokens_per_word": "tokens per word",
    "unknown_rate": "unknown words",
    "bits_per_character": "bits per character",
    "masked_word_accuracy": "masked-word accuracy",
}


def print_adaptation(adaptation: dict) -> None:
    """Prints the entry `adaptation` of results.json."""
    if words := adaptation["new_words"]:
        words = sorted(words, key=lambda word: -word["saved"])  # those of --words come first otherwise
        rows = [(word["piece"], " ".join(word["pieces"]), word["saved"]) for word in words[:_SHOWN]]
        most = f"; the {_SHOWN} that save most" if len(words) > _SHOWN else ""
        print_table(counted(len(words), "new word") + most, rows, ("word", "former word pieces", "tokens saved"))
    if nearest := adaptation.get("nearest_tokens"):
        rows = [(word, *(" ".join(found[when]) for when in ("before", "after"))) for word, found in nearest.items()]
        print_table("Nearest tokens of new words", rows, ("word", "before training", "after training"))
    rows = [
        (f"{text}: {title}", *(found[when].get(name) for when in ("before", "after")))
        for text, found in adaptation.get("held_out", {}).items()
        for name, title in _SCORES.items()
    ]
    if rows:
        print_table("Held-out text", rows, ("score", "before", "after"))
    if "domain" not in adaptation.get("held_out", {}):
        print(
            "the domain was not scored: no document is held out (give at least two, and a --validation-share above 0)"
        )
    if "general" not in adaptation.get("held_out", {}):
        print("forgetting was not measured: give general text by --general or --replay")
