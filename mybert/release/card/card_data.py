"""Data for the model card, read from the files of a bundle; unknown values are left out of the card."""

from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from safetensors import safe_open

from mybert.common.manifest import MANIFEST
from mybert.release.card.manifest_chain import PROVENANCE
from mybert.release.heads import PIPELINES, model_configs
from mybert.release.hub.bundle_checks import read_object

_NOT_ON_THE_HUB = (None, "-", "python-docs")  # inputs of a corpus that have no fingerprint
_PARENTS = ("model", "checkpoint", "init_from")


@dataclass
class CardData:
    """
    Attributes:
        config: config.json.
        parameters: number of weights.
        manifest, results: of the checkpoint; empty if it has none.
        chain: manifests of its inputs (see `manifest_chain`).
        files: names in the bundle.
        tokenizer: tokenizer_config.json.
    """

    config: dict
    parameters: int
    manifest: dict
    results: dict
    chain: dict[str, dict]
    files: set[str] = field(default_factory=set)
    tokenizer: dict = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "CardData":
        """Reads the files of a bundle."""
        return cls(
            config=read_object(folder / "config.json") or {},
            parameters=sum(map(_count_weights, _weight_files(folder))),
            manifest=read_object(folder / MANIFEST) or {},
            results=read_object(folder / "results.json") or {},
            chain=read_object(folder / PROVENANCE) or {},
            files={path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()},
            tokenizer=read_object(folder / "tokenizer_config.json") or {},
        )

    @property
    def head(self) -> str:
        """The class of the saved head."""
        name = (self.config.get("architectures") or ["MyBertModel"])[0]
        return name if name in PIPELINES else "MyBertModel"

    @property
    def labels(self) -> list[str]:
        """The names of the labels of a classifier, if they were given."""
        labels = [str(label) for label in (self.config.get("id2label") or {}).values()]
        named = "Classification" in self.head and not all(label.startswith("LABEL_") for label in labels)
        return labels if named else []

    @property
    def encoder_config(self) -> dict:
        """The configuration of the model, or of the encoder of an encoder-decoder."""
        return next(iter(model_configs(self.config).values()))

    @property
    def max_length(self) -> int | None:
        """Tokens of the longest sequence in training, which training stores with the tokenizer."""
        lengths = [self.tokenizer.get("model_max_length"), self.encoder_config.get("max_position_embeddings")]
        return min((length for length in lengths if isinstance(length, int)), default=None)

    def corpora(self) -> dict[str, dict]:
        """Manifests of `mybert corpus` in the chain."""
        return {name: manifest for name, manifest in self.chain.items() if manifest.get("stage") == "corpus"}

    def base_model(self) -> str | None:
        """The model on the Hub that this model, or a parent of it, was trained from."""
        found = (_hub_name(entry) for name, entry in self._inputs() if name in _PARENTS)
        return next(filter(None, found), None)

    def datasets(self) -> list[str]:
        """Data sets on the Hub that were used for this model or its parents."""
        found = (_hub_name(entry) for name, entry in self._inputs() if name.startswith("input-") or name == "train")
        return list(dict.fromkeys(name.split(":")[0] for name in found if name))

    def _inputs(self) -> list[tuple[str, dict]]:
        manifests = [self.manifest, *self.chain.values()]
        return [item for manifest in manifests for item in (manifest.get("inputs") or {}).items()]

    def source_of(self, split: str) -> str:
        """File or data set of a split."""
        return str(((self.results.get("data") or {}).get(split) or {}).get("source", split))


def _hub_name(entry) -> str | None:
    """The name of an input on the Hub: manifests hold a fingerprint of all other inputs."""
    if isinstance(entry, dict) and "sha256" not in entry and entry.get("path") not in _NOT_ON_THE_HUB:
        return str(entry["path"])
    return None


def _weight_files(folder: Path) -> list[Path]:
    whole = folder / "model.safetensors"
    return [whole] if whole.is_file() else list(folder.glob("model-*-of-*.safetensors"))


def _count_weights(path: Path) -> int:
    with safe_open(path, "np") as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
