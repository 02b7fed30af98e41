"""`mybert import`: a BERT, transformers' or Google's, → a MyBERT folder with code, tokenizer and auto_map."""

from dataclasses import dataclass
from pathlib import Path

from mybert.common.errors import UserError
from mybert.common.manifest import identity, write_manifest
from mybert.common.output_folders import staged_folder
from mybert.common.settings import check, check_choice, setting
from mybert.common.tables import print_table
from mybert.release.convert.compare_models import refuse_above
from mybert.release.convert.export_bert import differences_from_bert
from mybert.release.convert.full_checkpoint import load_checkpoint, said_of, save_companions
from mybert.release.convert.import_tensorflow import CASINGS, find_prefix, load_tensorflow_checkpoint


@dataclass
class ImportSettings:
    """Settings of `import_bert`.

    Raises:
        UserError: a value is out of its range.
    """

    checkpoint: str = setting(
        "",
        "a BERT checkpoint: folder or Hub name in transformers' layout; or Google's original, a folder or path such "
        "as uncased_L-12_H-768_A-12/bert_model.ckpt, with bert_config.json and vocab.txt beside it",
        positional=True,
    )
    output: str = setting("", "folder to write (required)")
    casing: str = setting(
        "auto", "Google's checkpoints: is text lower-cased (uncased) or not (cased); auto: by the vocabulary's letters"
    )
    tolerance: float = setting(
        1e-4,
        "transformers' layout: largest difference from what BERT says, in units of its largest output if above 1",
    )
    overwrite: bool = setting(False, "replace the output")

    def __post_init__(self):
        for name in ("checkpoint", "output"):
            if not getattr(self, name):
                raise UserError(f"{name} is required")
        check_choice(self, "casing", CASINGS)
        check(self, "tolerance", self.tolerance > 0, "a positive number")


def main(settings: ImportSettings) -> None:
    print(f"the model is in {import_bert(settings)}")


def import_bert(settings: ImportSettings) -> Path:
    """Writes a MyBERT folder of the same weights and tokenizer.

    Returns:
        The folder. What came from transformers' layout was compared with what transformers' own class says.

    Raises:
        UserError: the checkpoint or the output cannot be used, or what they say differs by more than `tolerance`;
            nothing is left then.
    """
    output = Path(settings.output)
    inputs = [settings.checkpoint]
    with staged_folder(output, overwrite=settings.overwrite, stage="import", inputs=inputs) as folder:
        prefix = find_prefix(settings.checkpoint)
        if prefix is None and settings.casing != "auto":
            raise UserError("--casing is for Google's checkpoints; others say it in tokenizer_config.json")
        if prefix is None:
            checkpoint, facts = load_checkpoint(settings.checkpoint), {}
        else:
            checkpoint, facts = load_tensorflow_checkpoint(prefix, settings.casing)
        checkpoint.model.save_pretrained(folder)
        save_companions(checkpoint, folder)
        if prefix is None:
            facts["differences"] = differences_from_bert(checkpoint.model, settings.checkpoint, checkpoint.left_out)
            refuse_above(settings.tolerance, facts["differences"], "tolerance", "MyBERT does not say the same")
        write_manifest(
            folder,
            "import",
            settings=settings,
            # TensorFlow's name is that of no file, and would be taken for one of the Hub
            inputs={"checkpoint": identity(settings.checkpoint if prefix is None else f"{prefix}.index")},
            counts={"parameters": checkpoint.model.num_parameters()},
            architecture=type(checkpoint.model).__name__,
            left_out=checkpoint.left_out,
            **facts,
        )
    rows = [(name.replace("_", " "), value) for name, value in facts.items() if name != "differences"]
    rows += [(f"largest difference, {name}", value) for name, value in facts.get("differences", {}).items()]
    print_table(f"{settings.checkpoint} to {type(checkpoint.model).__name__}", [*rows, *said_of(checkpoint)])
    return output
