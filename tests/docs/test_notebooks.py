"""The notebooks of examples/ run from top to bottom with small parameters."""

import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

EXAMPLES = Path(__file__).parents[2] / "examples"
PARAMETERS = {
    "pretrain_from_text": 'TEXTS, VOCAB_SIZE, MAX_LENGTH, SIZE, STEPS, OUTPUT = ["books"], 300, 32, "tiny", 4, "out"',
    "finetune_and_explain": 'MODEL, TRAIN, TEST, EPOCHS, OUTPUT = "model", "train.csv", "dev.csv", 1, "out"',
    "adapt_bert": 'MODEL, TEXTS, NEW_WORDS, MAX_LENGTH, STEPS, OUTPUT = "model", ["papers.txt"], 20, 32, 2, "out"',
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_notebook_runs(name, workspace, tmp_path):
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    assert {line.split(" = ")[0] for line in cell.source.splitlines()} - {"TRAIN, TEST"} <= set(
        PARAMETERS[name].split(" = ")[0].split(", ")
    )
    cell.source = PARAMETERS[name]
    for path in workspace.iterdir():
        (tmp_path / path.name).symlink_to(path)
    with tempfile.TemporaryDirectory() as sockets:  # other programs may take ports before the kernel listens on them
        config = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        resources = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, config=config, timeout=300, startup_timeout=300, resources=resources).execute()


def test_every_notebook_is_run_here_and_has_no_outputs():
    notebooks = {path.stem: nbformat.read(path, as_version=4) for path in EXAMPLES.glob("*.ipynb")}
    assert notebooks.keys() == PARAMETERS.keys()
    for notebook in notebooks.values():
        assert not any(cell.get("outputs") for cell in notebook.cells)
