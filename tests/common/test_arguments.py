"""Warnings about training arguments that cost a run."""

import pytest
from transformers import TrainingArguments

from mybert.common.arguments import check_arguments


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        ({"learning_rate": 5.0}, "--learning-rate 5 "),
        ({"fp16": True}, "--fp16 has no effect on a CPU"),
        ({"learning_rate": 2.5e-3}, None),
    ],
)
def test_a_high_learning_rate_and_fp16_on_a_cpu_are_warned_about(tmp_path, caplog, arguments, warning):
    check_arguments(TrainingArguments(str(tmp_path), use_cpu=True, **arguments), {})
    assert (warning in caplog.text) if warning else not caplog.records
