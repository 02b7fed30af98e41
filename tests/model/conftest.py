import sys
from pathlib import Path

import pytest

from modeling_mybert import operations_mybert, padding_mybert

sys.path.insert(0, str(Path(__file__).parent))  # for labelled_batches, a module of helpers


@pytest.fixture
def unreadable(monkeypatch):
    """Called, it makes models run as on a GPU, where lengths cannot be read without waiting for the device."""

    def patch() -> None:
        monkeypatch.setattr(padding_mybert, "can_read_without_sync", lambda tensor, training: not training)
        monkeypatch.setattr(operations_mybert, "faster", None)

    return patch
