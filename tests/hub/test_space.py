"""`mybert push --space`: a Space that runs from its own folder, and its publication."""

import shutil
import sys
from types import SimpleNamespace

import pytest
import yaml
from hub_server import REPO

from mybert import Predictor, UserError
from mybert.release.hub import space
from mybert.release.hub.bundle import make_bundle
from mybert.release.hub.push import push
from mybert.release.settings import PushSettings

pytestmark = pytest.mark.slow
gradio_client = pytest.importorskip("gradio_client", reason="Gradio is not installed")
SPACE = f"{REPO.partition('/')[0]}/demo"


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    """The Space of the tiny classifier."""
    settings = PushSettings(model=str(models("classifier")), repo_id=REPO, space=SPACE, license="mit")
    folder = tmp_path_factory.mktemp("space")
    space.write_space(make_bundle(settings, folder / "bundle"), settings, folder / "space")
    return folder / "space"


def test_the_space_runs_from_its_own_folder_and_predicts_what_the_model_predicts(folder, models, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    with space.running(folder) as address:
        client = gradio_client.Client(address, verbose=False, download_files=False)
        shares = client.predict("a great film", api_name="/predict")[0]
    found = {one["label"]: one["confidence"] for one in shares["confidences"]}
    assert found == pytest.approx(Predictor(models("classifier"), device="cpu")("a great film")["scores"], abs=1e-5)
    assert not list(folder.rglob("__pycache__"))


def test_a_space_without_the_package_does_not_start(folder, tmp_path):
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "mybert/demo/page.py").unlink()
    with pytest.raises(UserError, match=r"the Space does not start: ModuleNotFoundError.*mybert\.demo\.page"):
        space.check_space(broken)


def test_its_header_and_requirements_name_the_installed_versions(folder):
    header = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    needed = dict(line.split("==") for line in (folder / "requirements.txt").read_text().splitlines())
    assert (header["sdk"], header["app_file"], header["models"]) == ("gradio", "app.py", [REPO])
    assert header["sdk_version"] == needed["gradio"] and header["license"] == "mit"
    assert {"torch", "transformers", "captum", "tokenizers"} <= needed.keys()
    assert "+" not in needed["torch"]
    assert ("backports.zstd" in needed) == (sys.version_info < (3, 14)), "later versions of Python have it"


@pytest.mark.parametrize("name", ["mybert", "tokenization", "README.md"])
def test_a_model_may_have_the_name_of_another_part_of_the_space(name, models, tmp_path):
    settings = PushSettings(model=str(models("classifier")), repo_id=f"alice/{name}", space=SPACE)
    space.write_space(make_bundle(settings, tmp_path / "bundle"), settings, tmp_path / "space")
    assert (tmp_path / "space/models" / name / "model.safetensors").is_file()
    assert (tmp_path / "space/mybert/demo/page.py").is_file() and (tmp_path / "space/README.md").is_file()


def test_the_space_is_published_after_the_model_and_an_update_removes_old_files(client, hub, models, capsys):
    settings = PushSettings(model=str(models("classifier")), repo_id=REPO, space=SPACE, verify=False)
    push(settings)
    repo = hub.repos[SPACE]
    files = repo.commits[repo.find("main")]
    assert {"app.py", "requirements.txt", "README.md", "mybert/demo/page.py"} <= files.keys()
    assert f"models/{REPO.partition('/')[2]}/model.safetensors" in files
    assert f"the demo is at {hub.url}" in capsys.readouterr().out
    hub.new_repo("someone/other", False)
    other = SimpleNamespace(**vars(settings) | {"space": REPO})
    with pytest.raises(UserError, match="holds something else"):
        space.publish_space(models("classifier"), other)
