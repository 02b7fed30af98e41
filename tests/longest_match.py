"""A brute-force WordPiece."""


def longest_match(word: str, vocabulary: set[str]) -> list[str]:
    """BERT's WordPiece by trying every split from the longest first piece on; [UNK] if one place has no match."""
    found, start = [], 0
    while start < len(word):
        candidates = [("##" if start else "") + word[start:end] for end in range(start + 1, len(word) + 1)]
        matches = [candidate for candidate in candidates if candidate in vocabulary]
        if not matches:
            return ["[UNK]"]
        found.append(max(matches, key=len))
        start += len(found[-1].removeprefix("##"))
    return found
