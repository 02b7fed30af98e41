"""`mybert import`: convert a BERT of transformers or of google-research/bert to a MyBERT folder."""

from pathlib import Path

from mybert.common.errors import UserError
from mybert.common.output_folders import staged_folder
from mybert.release.convert.compare_models import refuse_above
from mybert.release.convert.export_bert import differences_from_bert
from mybert.release.convert.full_checkpoint import finish, load_checkpoint, print_conversion, refuse_int8
from mybert.release.convert.import_tensorflow import load_tensorflow_checkpoint
from mybert.release.settings import ImportSettings, find_prefix


def import_bert(settings: ImportSettings) -> Path:
    """Writes a MyBERT folder with the same weights and tokenizer.

    Returns:
        The folder. For transformers' format, its outputs were compared with those of transformers' own class.

    Raises:
        UserError: the checkpoint or the output cannot be used, or the outputs differ by more than `tolerance`; the
            output is not written then.
    """
    output = Path(settings.output)
    with staged_folder(output, overwrite=settings.overwrite, stage="import", inputs=[settings.model]) as folder:
        prefix = find_prefix(settings.model)
        if prefix is None and settings.casing != "auto":
            raise UserError("--casing is for TensorFlow checkpoints; others have it in tokenizer_config.json")
        if prefix is None:
            checkpoint, found = load_checkpoint(settings.model), {}
            refuse_int8(checkpoint)
        else:
            checkpoint, found = load_tensorflow_checkpoint(prefix, settings.casing)
        checkpoint.model.save_pretrained(folder)
        if prefix is None:
            found["differences"] = differences_from_bert(checkpoint.model, settings.model, checkpoint.left_out)
            refuse_above(settings.tolerance, found["differences"], "--tolerance")
        finish(checkpoint, folder, "import", settings, settings.model if prefix is None else f"{prefix}.index", found)
    rows = [(name.replace("_", " "), value) for name, value in found.items() if name != "differences"]
    rows += [(f"largest difference, {name}", value) for name, value in found.get("differences", {}).items()]
    print_conversion(f"{settings.model} to {type(checkpoint.model).__name__}", checkpoint, rows)
    return output
