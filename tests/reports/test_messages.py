"""Messages of `mybert doctor`: for each file that is missing or damaged, what its one line must say."""

import json

import pytest

WRITTEN = "repeat the command that wrote it"
LACKS = "run: a file lacks an entry or has one of another type ( … ); repeat `mybert"
MISTAKES = [  # contents of manifest.json, results.json and log.jsonl in `run`, as objects or as bytes
    (None, None, None, "run has no manifest.json; name the output folder of a MyBERT command"),
    (b"{", None, None, "run/manifest.json is damaged ( … ); rebuild run"),
    ([], None, None, "run/manifest.json is damaged: expected a JSON object, found []; rebuild run"),
    ({"stage": "pretrain"}, b"{", None, f"run/results.json is damaged ( … ); {WRITTEN}"),
    ({"stage": "corpus"}, {}, None, f"{LACKS} corpus`"),
    ({"stage": "evaluate"}, {"metrics": {}}, None, f"{LACKS} evaluate`"),
    ({"stage": "evaluate"}, {"metrics": {"accuracy": "high"}, "rows": 3}, None, f"{LACKS} evaluate`"),
    ({"stage": "finetune"}, {"validation": {"metrics": {"accuracy": 1.0}}}, None, f"{LACKS} finetune`"),
    *(
        ({"stage": "pretrain"}, {}, log, f"run/log.jsonl, line 1: not JSON ( … ); {WRITTEN}")
        for log in (b"\xff\xfe\xff\n", b"[" * 100_000 + b"\n", b'{"step": 1,\n{}\n')
    ),
]


@pytest.mark.parametrize(("manifest", "results", "log", "message"), MISTAKES)
def test_a_folder_that_cannot_be_judged_is_one_line(assert_refused, tmp_path, manifest, results, log, message):
    (tmp_path / "run").mkdir()
    for name, content in {"manifest.json": manifest, "results.json": results, "log.jsonl": log}.items():
        if content is not None:
            written = content if isinstance(content, bytes) else json.dumps(content).encode()
            (tmp_path / "run" / name).write_bytes(written)
    assert_refused(["doctor", "run", "--report"], message)
