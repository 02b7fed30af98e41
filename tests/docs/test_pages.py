"""The documentation: its Python and shell blocks run on tiny data, its reference and its links are complete."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mybert import cli
from mybert.evaluation import evaluate

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+) -->\n)?```(?P<language>python|bash)\n(?P<code>.*?)^```", re.M | re.S
)
OUTPUT = re.compile(r"--output (\S+)|output=\"(\S+)\"")
PAGES = (
    "README.md",
    "docs/start.md",
    "docs/tutorial.md",
    "docs/guides",
    "docs/concepts",
    "docs/reference/other-libraries.md",
)
LINKING_PAGES = ("README.md", "CONTRIBUTING.md", "docs/reference/other-libraries.md")
REPLACED = (  # in Python blocks and commands: full size → small size
    (r"max_steps=[\d_]+", "max_steps=2"),
    (r"vocab_size=[\d_]+", "vocab_size=300"),
    (r"max_length=128", "max_length=32"),
    (r'size="\w+"', 'size="tiny"'),
    (r"--size \w+", "--size tiny"),
    (r"sentence-transformers/all-MiniLM-L6-v2", "model"),
    (r"MOST, CHECKED, WRONG = .*", "MOST, CHECKED, WRONG = 20, 20, 20"),
    (r'(task="text-classification",)', r"\1 max_steps=2,"),
)
NOT_RUN = ("pip", "make", "source", "python3", "torchrun", "hf", "git", "mybert plan", "mybert quickstart")


def run_block(language: str, code: str, names: dict, run_mybert: Callable) -> None:
    for full, small in REPLACED:
        code = re.sub(full, small, code)
    if language == "python":
        exec(compile(code, "documentation", "exec"), names)
        return
    for line in code.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith(NOT_RUN):
            continue
        *echoed, command = line.split("|") if line.startswith("echo") else [line]
        words = shlex.split(command, comments=True)
        text = shlex.split(echoed[0])[1] + "\n" if echoed else None
        if words:
            run_mybert(words, text)


def pages() -> list[Path]:
    found = [ROOT / name for name in PAGES]
    return [page for path in found for page in (sorted(path.glob("*.md")) if path.is_dir() else [path])]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page, workspace, run_mybert, tmp_path, monkeypatch):
    blocks = [found.groupdict() for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    blocks = [block for block in blocks if block["reason"] is None]
    if not blocks:
        pytest.skip("no code to run")
    own = {name for block in blocks for pair in OUTPUT.findall(block["code"]) for name in pair}
    for path in workspace.iterdir():
        if path.name not in own:  # the page makes it itself
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluate, "better_than", lambda *_: (True, True))  # models of two steps list labels too
    names = {"__name__": "documentation"}
    for block in blocks:
        run_block(block["language"], block["code"], names, run_mybert)


def test_every_command_has_a_page_in_the_reference(tmp_path, monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    from command_reference import write_pages

    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "gone.md").touch()  # of a command that was removed
    write_pages(tmp_path / "commands")
    assert {page.stem for page in (tmp_path / "commands").iterdir()} == set(cli.COMMANDS)
    assert "```{command} tokenizer\n```" in (tmp_path / "commands" / "tokenizer.md").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The documentation as `make docs` builds it."""
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fresh-env", "--fail-on-warning", "-q", ROOT / "docs", folder]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("page", ["index", "guides/finetune", "reference/commands/finetune", "benchmarks", "search"])
def test_axe_finds_no_violation(page, dark, site, browser, axe):
    browser.use_theme("dark" if dark else "light")
    browser.resize(390)
    browser.open((site / f"{page}.html").as_uri())
    assert browser.violations(axe) == []
    assert browser.run("return document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(
    "page",
    [*map(ROOT.joinpath, LINKING_PAGES), *ROOT.glob("benchmarks/**/*.md")],
    ids=lambda page: page.name,
)
def test_links_to_files_of_the_repository_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text(encoding="utf-8"))
    for link in {part for pair in links for part in pair if part and "://" not in part}:
        assert (page.parent / link).exists(), link


def test_the_table_of_other_libraries_links_to_every_script():
    text = (ROOT / "docs/reference/other-libraries.md").read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / "tests/clients/scripts").glob("*.py")}
    linked = re.findall(r"^\| \[[^\]]+\]\(\.\./\.\./tests/clients/scripts/([\w.]+)\)", text, re.M)
    assert sorted(linked) == sorted(scripts)
