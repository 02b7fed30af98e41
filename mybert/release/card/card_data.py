"""What a card can say, read off config, weights, results.json and the chain of manifests; the rest is left out."""

from dataclasses import dataclass, field
from pathlib import Path

from safetensors import safe_open

from mybert.common.json_io import parse_json
from mybert.common.manifest import MANIFEST
from mybert.release.card.manifest_chain import PROVENANCE
from mybert.release.hub.auto_classes import HEADS, Head
from mybert.release.hub.bundle_checks import sides

_RESULTS = "results.json"
_NOT_A_NAME = ("-", "python-docs")  # inputs of a corpus without a fingerprint that are no data sets of the Hub either
_PARENTS = ("model", "checkpoint", "init_from")


@dataclass
class Facts:
    """
    Attributes:
        config: config.json.
        parameters: numbers in the weights.
        manifest, results: of the checkpoint; empty if it has none.
        chain: manifests that led to it, by how they were reached.
        files: names in the bundle.
    """

    config: dict
    parameters: int
    manifest: dict
    results: dict
    chain: dict[str, dict]
    files: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, folder: Path) -> "Facts":
        """Those of a bundle."""
        return cls(
            config=_read(folder / "config.json"),
            parameters=sum(map(_numbers_in, folder.glob("*.safetensors"))),
            manifest=_read(folder / MANIFEST),
            results=_read(folder / _RESULTS),
            chain=_read(folder / PROVENANCE),
            files={path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()},
        )

    @property
    def head(self) -> tuple[str, Head]:
        """Name of the class that was saved, and what is known of it."""
        name = (self.config.get("architectures") or ["MyBertModel"])[0]
        return name, HEADS.get(name, HEADS["MyBertModel"])

    @property
    def shape(self) -> dict:
        """The configuration that sizes are read off: of a pair, the encoder's."""
        return next(iter(sides(self.config).values()))

    @property
    def manifests(self) -> dict[str, dict]:
        """That of the checkpoint, as "", and those before it."""
        return {"": self.manifest, **self.chain}

    def corpora(self) -> dict[str, dict]:
        """Manifests of `mybert corpus` in the chain."""
        return {name: manifest for name, manifest in self.chain.items() if manifest.get("stage") == "corpus"}

    def base_model(self) -> str | None:
        """The checkpoint of the Hub that training started from, here or further up: an input without a fingerprint."""
        for manifest in self.manifests.values():
            for name in _PARENTS:
                if named := _hub_name((manifest.get("inputs") or {}).get(name)):
                    return named
        return None

    def datasets(self) -> list[str]:
        """Names of the Hub's data sets that were read, here or further up."""
        found = []
        for manifest in self.manifests.values():
            for name, entry in (manifest.get("inputs") or {}).items():
                if (name.startswith("input-") or name == "train") and (named := _hub_name(entry)):
                    found.append(named.split(":")[0])
        return list(dict.fromkeys(found))

    def evaluated_on(self, split: str) -> str:
        """Name of the rows of a split."""
        return str(((self.results.get("data") or {}).get(split) or {}).get("source", split))


def _hub_name(entry) -> str | None:
    """Stages write no fingerprint for what is on the Hub."""
    if isinstance(entry, dict) and "sha256" not in entry and entry.get("path") not in (None, *_NOT_A_NAME):
        return str(entry["path"])
    return None


def _read(path: Path) -> dict:
    try:
        value = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _numbers_in(path: Path) -> int:
    numbers = 0
    with safe_open(path, "np") as file:
        for name in file.keys():  # noqa: SIM118
            count = 1
            for length in file.get_slice(name).get_shape():
                count *= length
            numbers += count
    return numbers
