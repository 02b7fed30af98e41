"""Reading checkpoints that may be damaged, of another kind, or hold code: one line says what is wrong."""

import contextlib
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from mybert.common.devices import quiet_loading
from mybert.common.error_messages import cause
from mybert.common.errors import UserError
from mybert.common.hub import check_repository
from mybert.common.json_io import parse_json
from mybert.common.manifest import read_manifest
from mybert.common.paths import did_you_mean


@contextlib.contextmanager
def explain_unreadable(name: str) -> Iterator[None]:
    """Turns what is raised while checkpoint `name` is read into one line, and mutes transformers' remarks on weights.

    Raises:
        UserError: a file is missing, shortened or damaged, a setting is wrong, or the weights hold more than tensors.
    """
    _check_folder(name)
    try:
        with quiet_loading():
            yield
    except UserError:
        raise
    except pickle.UnpicklingError as error:  # only tensors are unpickled (torch.load's weights_only)
        refused = next((line for line in str(error).splitlines() if "GLOBAL" in line), "not a file of tensors")
        raise UserError(
            f"checkpoint {name}: its PyTorch weights are refused, since they hold more than tensors and reading them "
            f"might run a stranger's code ({refused.strip()}); ask for a copy in safetensors"
        ) from error
    except Exception as error:  # transformers and torch check few types: they trip over a wrong one anywhere
        if not Path(name).exists() and (meant := did_you_mean(name)):
            raise UserError(f"checkpoint {name}: there is no such folder, and the Hub gives none{meant}") from error
        where = "" if Path(name).exists() else "there is no such folder, and as a name of the Hub: "
        raise UserError(
            f"checkpoint {name} cannot be used ({where}{cause(error)}); name a MyBERT or BERT checkpoint"
        ) from error


def refuse_other_vocabulary(name: str, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """
    Raises:
        UserError: the tokenizer of checkpoint `name` has tokens that its model has no vector for.
    """
    if len(tokenizer) > config.vocab_size:
        raise UserError(
            f"the tokenizer of {name} has {len(tokenizer)} tokens, its model {config.vocab_size}; "
            "one of them is of another checkpoint"
        )


def refuse_missing(name: str, missing: Iterable[str], new: tuple[str, ...] = (), remedy: str = "") -> None:
    """
    Args:
        missing: weights of the model that the checkpoint lacks (`missing_keys` of `from_pretrained`).
        new: how the names of those begin that may start new.

    Raises:
        UserError: others are missing too.
    """
    lacking = sorted(key for key in missing if not key.startswith(new))
    if lacking:
        remedy = remedy or "they would be random"
        raise UserError(f"checkpoint {name} lacks {len(lacking)} weights, such as {lacking[0]}; {remedy}")


def refuse_other_shapes(name: str, mismatched: list[tuple]) -> None:
    """
    Args:
        mismatched: name of a weight, its shape in the checkpoint and in the model (`mismatched_keys` of
            `from_pretrained` with `output_loading_info` and `ignore_mismatched_sizes`).

    Raises:
        UserError: there is one.
    """
    for weight, stored, expected in sorted(mismatched):
        raise UserError(
            f"checkpoint {name}: its config.json asks for {tuple(expected)} numbers in {weight}, its weights have "
            f"{tuple(stored)}; they are not of one model"
        )


def _check_folder(name: str) -> None:
    """Refuses paths that transformers would look up on the Hub, and folders that it would read without a complaint.

    Raises:
        UserError: there is no such folder, or no configuration in it.
    """
    path = Path(name)
    if path.is_file():
        raise UserError(f"checkpoint {name} cannot be used (a file); name the folder that it is in")
    if not path.exists() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        meant = did_you_mean(name) or "; name one, or a repository of the Hub as OWNER/NAME"
        raise UserError(f"checkpoint {name} cannot be used (there is no such folder){meant}")
    if not path.is_dir():
        check_repository(name)
        return
    config = path / "config.json"
    if not config.is_file():
        manifest = read_manifest(path)
        if manifest.get("complete") is False:
            command = f"mybert {manifest.get('stage')} … --resume"
            raise UserError(f"checkpoint {name} is not finished; `{command}` goes on with it")
        raise UserError(f"checkpoint {name} cannot be used (no config.json in it); name a MyBERT or BERT checkpoint")
    try:
        found = parse_json(config.read_bytes())
    except ValueError as error:
        raise UserError(f"{config} is not JSON ({cause(error)}); copy it again") from error
    if not isinstance(found, dict):
        raise UserError(f"{config} is no configuration: expected an object, found {str(found)[:40]!r}")
