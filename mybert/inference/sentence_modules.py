"""The modules of a sentence-transformers folder: how the hidden states of its encoder become the vector of a text.

`modules.json` lists an encoder, one pooling, and layers that follow it. The reference is sentence-transformers 6.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import snapshot_download
from torch import Tensor, nn
from transformers import PreTrainedModel

from mybert.common.errors import UserError, cause, short, short_list, warn_once
from mybert.common.json_io import parse_json, read_json_object
from mybert.inference.checkpoint import SENTENCE_SETTINGS, checkpoint_file, explain_unreadable
from mybert.inference.sentence_layers import ELSEWHERE, LAYERS, REMEDY
from mybert.settings.shared import POOLING_MODES

MODULES = "modules.json"
_OLD_KEYS = {
    "cls": "cls_token",
    "max": "max_tokens",
    "mean": "mean_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}
_PLAIN = {  # what an encoder of texts has
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
_ARGUMENTS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
_SAME_VECTORS = (  # settings and arguments that say how a model is loaded or batched
    *("unpad_inputs", "trust_remote_code", "revision", "token", "cache_dir", "local_files_only", "dtype"),
    *("attn_implementation", "add_pooling_layer", "use_safetensors", "low_cpu_mem_usage", "device_map", "use_cache"),
    *("torch_dtype", "use_fast", "padding_side"),
)
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


@dataclass
class SentenceModules:
    """What sentence-transformers computes for a text. The defaults are those of a plain BERT.

    Attributes:
        encoder: folder of the encoder and the tokenizer; of a plain BERT, its folder or name.
        max_length: maximum tokens of a text; None: that of the tokenizer.
        lower_case: texts are lower-cased first.
        poolings: modes of the pooling, whose vectors are concatenated.
        pools_prompt: whether the tokens of a prompt are pooled too.
        layers: (N, H) → (N, width), applied to the pooled vectors.
        names: the modules after the encoder; none: a plain BERT.
        prompts: text by name that is put before a text.
        default_prompt: name of the prompt of a text for which none is chosen.
        truncate_dim: number of leading dimensions to keep; None: all.
        similarity: how vectors are compared: cosine, dot, euclidean or manhattan.
    """

    encoder: str
    max_length: int | None = None
    lower_case: bool = False
    poolings: tuple[str, ...] = ("mean",)
    pools_prompt: bool = True
    layers: list[Callable[[Tensor], Tensor]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    truncate_dim: int | None = None
    similarity: str = "cosine"

    def warn_of_similarity(self, name: str) -> None:
        """Warns, once, if the cosine orders texts differently from the similarity of the encoder called `name`."""
        has_length_1 = self.names[-1:] == ["Normalize"] and self.truncate_dim is None
        if self.similarity != "cosine" and not (has_length_1 and self.similarity in ("dot", "euclidean")):
            warn_once(
                "%s compares texts by %r, and MyBERT searches by the cosine, so that the order differs; use "
                "SentenceTransformer.similarity for its own",
                *(name, self.similarity),
            )

    @property
    def is_mean(self) -> bool:
        """Whether the vectors are the means of the hidden states, with or without length 1."""
        others = {*self.names} - {"Pooling", "Normalize", "Dropout"}
        return self.poolings == ("mean",) and not others and self.truncate_dim is None

    def apply(self, pooled: Tensor) -> Tensor:
        """(N, H · number of poolings) → (N, width)."""
        for layer in self.layers:
            pooled = layer(pooled)
        return pooled[:, : self.truncate_dim]

    def prompt(self, name: str | None) -> str:
        """The prompt with this name, or the default one.

        Raises:
            UserError: there is no such prompt.
        """
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise UserError(f"--prompt-name: expected a prompt of the checkpoint ({known}), found {name!r}")
        return self.prompts[name]

    def query_prompt(self) -> str:
        """The prompt for queries, as in `SentenceTransformer.encode_query`."""
        return self.prompts.get("query", "")

    def document_prompt(self) -> str | None:
        """The name of the prompt for documents; None: they have none, or the default one."""
        name = next((name for name in _DOCUMENT_PROMPTS if self.prompts.get(name)), None)
        return name if name and self.prompts[name] != self.prompts.get(self.default_prompt or "") else None


class TextVectors(nn.Module):
    """An encoder whose `logits` (B, width) are the vectors of its sequences, as `Embedder` computes them.

    Args:
        modules: of the checkpoint `name`; None: the mean of the hidden states.

    Raises:
        UserError: the pooling is neither the mean nor [CLS].
    """

    def __init__(self, encoder: PreTrainedModel, modules: SentenceModules | None, name: str):
        super().__init__()
        self.base_model, self.config, self.device = encoder, encoder.config, encoder.device
        self.modules_after = modules or SentenceModules(name)
        if self.modules_after.poolings not in (("mean",), ("cls",)):
            poolings = ", ".join(self.modules_after.poolings)
            raise UserError(f"{name}: similarities need a pooling by mean or cls, the checkpoint has {poolings}")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        states = self.base_model(input_ids, attention_mask, token_type_ids).last_hidden_state.float()
        real = attention_mask[..., None].float()
        pooled = states[:, 0] if self.modules_after.poolings == ("cls",) else (states * real).sum(1) / real.sum(1)
        vectors = self.modules_after.apply(pooled.cpu() if self.modules_after.layers else pooled)
        return {"logits": vectors.to(self.device)}


def modules_folder(name: str) -> Path | None:
    """The folder with `modules.json` and its parts; None if the checkpoint `name` has none.

    Of a checkpoint on the Hub, these files are downloaded.
    """
    file = checkpoint_file(name, MODULES)
    if file is None:
        return None
    if Path(name).is_dir():
        return file.parent
    return Path(snapshot_download(name, allow_patterns=["*.json", "*.txt", "*.safetensors"]))


def find_modules(name: str) -> tuple[SentenceModules, UserError | None]:
    """The modules of a checkpoint; why they cannot be used, which matters only without another pooling."""
    with contextlib.nullcontext() if Path(name).is_dir() else explain_unreadable(name):
        folder = modules_folder(name)
    if folder is None:
        return SentenceModules(name), None
    try:
        return read_sentence_modules(folder), None
    except UserError as error:
        with contextlib.suppress(UserError, IndexError):
            name = str(folder / module_entries(folder)[0]["path"])
        return SentenceModules(name), error


def module_entries(folder: Path) -> list[dict[str, str]]:
    """The `type` and `path` of each module in `modules.json`, in order.

    Raises:
        UserError: the file has another form, or a path leads out of the folder.
    """
    file = folder / MODULES
    try:
        entries = [{"type": str(entry["type"]), "path": str(entry["path"])} for entry in parse_json(file.read_bytes())]
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file} is not a list of modules ({cause(error)}); restore it, or remove it") from error
    for entry in entries:
        if not (folder / entry["path"]).resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{file}: the path {entry['path']!r} leads out of the folder; correct it")
    return entries


def read_sentence_modules(folder: Path) -> SentenceModules:
    """The modules in a folder that has a `modules.json`.

    Raises:
        UserError: a file is damaged, or a module is not supported.
    """
    first, *others = module_entries(folder) or [{"type": "no module", "path": ""}]
    if _kind(first) != "Transformer":
        raise UserError(f"{folder / MODULES} begins with {first['type']}, expected Transformer; {ELSEWHERE}")
    modules = SentenceModules(str(folder / first["path"]))
    _read_encoder_settings(modules)
    _read_prompts(modules, folder / SENTENCE_SETTINGS)
    poolings = 0
    for entry in others:
        kind, path = _kind(entry), folder / entry["path"]
        modules.names.append(kind)
        if kind == "Pooling":
            poolings += 1
            _read_pooling(modules, path / "config.json")
        elif kind == "Normalize" and poolings:
            modules.layers.append(nn.functional.normalize)
        elif kind in LAYERS and poolings:
            modules.layers.append(LAYERS[kind](path))
        elif kind != "Dropout":  # which does nothing here
            raise UserError(f"{folder / MODULES}: the module {entry['type']} is not supported here; {REMEDY}")
    if poolings != 1:
        raise UserError(f"{folder / MODULES} has {poolings} Pooling modules, expected 1; {REMEDY}")
    return modules


def _kind(entry: dict[str, str]) -> str:
    """The class of a module of sentence-transformers; the whole name of another one, which may do anything."""
    package, _, name = entry["type"].rpartition(".")
    return name if package.split(".")[0] == "sentence_transformers" else entry["type"]


def _read_encoder_settings(modules: SentenceModules) -> None:
    file = min(Path(modules.encoder).glob("sentence_*_config.json"), default=None)  # one, named after some encoder
    settings = {} if file is None else read_json_object(file, "copy it again")
    if settings.get("transformer_task") == "sequence-classification":
        raise UserError(
            f"{file}: the model is a cross-encoder, which scores pairs of texts, for `mybert search --reranker` and "
            "`mybert serve`; name a sentence encoder, or choose a pooling by --pooling"
        )
    length = settings.pop("max_seq_length", None)
    if length is not None and (type(length) is not int or length < 3):
        raise UserError(f"{file}: max_seq_length is {length!r}, expected a whole number of at least 3")
    modules.max_length, modules.lower_case = length, bool(settings.pop("do_lower_case", False))
    for name, value in settings.items():
        if name in _ARGUMENTS and isinstance(value, dict):
            value = {key: one for key, one in value.items() if key not in _SAME_VECTORS}
        if name not in _SAME_VECTORS and value and value != _PLAIN.get(name):
            raise UserError(f"{file}: {name} {short(value, 60)} is not supported here; {REMEDY}")


def _read_prompts(modules: SentenceModules, file: Path) -> None:
    settings = read_json_object(file, "copy it again") if file.is_file() else {}
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise UserError(f"{file}: prompts must be an object with texts, found {prompts!r}")
    modules.prompts = {name: text or "" for name, text in prompts.items()}
    for name in ("query", "document"):  # every encoder has them
        modules.prompts.setdefault(name, "")
    modules.default_prompt, modules.truncate_dim = settings.get("default_prompt_name"), settings.get("truncate_dim")
    modules.similarity = str(settings.get("similarity_fn_name") or "cosine")
    if not isinstance(modules.default_prompt, str | None):
        raise UserError(f"{file}: default_prompt_name is {modules.default_prompt!r}, expected the name of a prompt")
    if modules.default_prompt is not None and modules.default_prompt not in modules.prompts:
        known = short_list(modules.prompts)
        raise UserError(
            f"{file}: default_prompt_name is {modules.default_prompt!r}, expected one of {known}; correct it"
        )
    if modules.truncate_dim is not None and (type(modules.truncate_dim) is not int or modules.truncate_dim < 1):
        raise UserError(f"{file}: truncate_dim is {modules.truncate_dim!r}, expected a whole number of at least 1")


def _read_pooling(modules: SentenceModules, file: Path) -> None:
    settings = read_json_object(file, "copy it again")
    modes = settings.get("pooling_mode")
    if modes is None:  # one key for each mode in older folders
        modes = [mode for mode, key in _OLD_KEYS.items() if settings.get(f"pooling_mode_{key}")] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes or not set(map(str, modes)) <= {*POOLING_MODES}:
        raise UserError(f"{file}: pooling_mode is {modes!r}, expected some of {', '.join(POOLING_MODES)}; {REMEDY}")
    modules.poolings, modules.pools_prompt = tuple(modes), bool(settings.get("include_prompt", True))
