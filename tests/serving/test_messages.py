"""Messages of `mybert serve`: for each mistake, what its one line must say."""

import shutil
import socket

import pytest

from mybert.artifacts.manifest import write_manifest

MISTAKES = [  # words, and message; " … " in a message stands for anything
    ("index --pooling mean", "--pooling has no effect on an index"),
    ("index --long-texts window", "--long-texts has no effect on an index"),
    ("model --reranker x", "--reranker has no effect on a checkpoint"),
    ("model --host 192.0.2.1 --port 0", "--host 192.0.2.1 --port 0: … another --host"),  # an address of RFC 5737
    ("model --port TAKEN", "--host 127.0.0.1 --port TAKEN: Address already in use; name another --port"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_one_line(models, tmp_path, assert_refused, words, message):
    shutil.copytree(models("encoder"), tmp_path / "model")
    (tmp_path / "index").mkdir()
    write_manifest(tmp_path / "index", "index", settings={}, inputs={}, counts={})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_refused(["serve", *words.replace("TAKEN", port).split()], message.replace("TAKEN", port))
