import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from outcomes import Outcome, compare, read_outcomes, totals

REPORT = """<testsuites><testsuite>
<testcase classname="tests.conformance.conformance_modeling.BertModelTest" name="test_save_load"/>
<testcase classname="tests.conformance.conformance_modeling.MyBertModelTest" name="test_save_load"/>
<testcase classname="tests.conformance.conformance_modeling.MyBertModelTest" name="test_save_load">
<failure/></testcase>
<testcase classname="tests.conformance.conformance_modeling.BertModelTest" name="test_pipeline_fill_mask"/>
<testcase classname="tests.conformance.conformance_modeling.MyBertModelTest" name="test_pipeline_fill_mask">
<skipped message="no model"/></testcase>
<testcase classname="tests.conformance.conformance_modeling.BertModelTest" name="test_greedy_generate"/>
<testcase classname="tests.conformance.conformance_modeling.MyBertModelTest" name="test_greedy_generate"/>
</testsuite></testsuites>"""


@pytest.fixture
def outcomes(tmp_path):
    (tmp_path / "junit.xml").write_text(REPORT, encoding="utf-8")
    return read_outcomes(tmp_path / "junit.xml")


def test_a_failed_subtest_fails_its_test_and_a_skip_keeps_its_reason(outcomes):
    ends = {test: (str(end["Bert"]), str(end["MyBert"])) for test, end in outcomes.items()}
    assert ends == {
        "ModelTest.test_save_load": ("passed", "failed"),
        "ModelTest.test_pipeline_fill_mask": ("passed", "skipped (no model)"),
        "ModelTest.test_greedy_generate": ("passed", "passed"),
    }


def test_differences_that_are_not_explained_and_explanations_without_a_difference_are_named(outcomes):
    exceptions = {"ModelTest.test_save_load": "because", "ModelTest.test_greedy_generate": "no longer"}
    differences, stale = compare(outcomes, exceptions)
    assert {d.test: d.reason for d in differences} == {
        "ModelTest.test_save_load": "because",
        "ModelTest.test_pipeline_fill_mask": "NOT EXPLAINED",
    }
    assert stale == ["ModelTest.test_greedy_generate"]
    assert compare(outcomes, exceptions, complete=False)[1] == []


def test_a_skip_for_another_reason_is_a_difference_but_the_name_of_the_class_is_none():
    reason = "<class 'transformers.models.bert.modeling_bert.BertModel'> has no RoPE"
    own = "<class 'modeling_mybert.backbone_mybert.MyBertModel'> has no RoPE"
    skipped = {"ModelTest.test_rope": {"Bert": Outcome("skipped", reason), "MyBert": Outcome("skipped", own)}}
    assert compare(skipped, {}) == ([], [])
    skipped["ModelTest.test_rope"]["MyBert"] = Outcome("skipped", "not supported")
    assert [d.test for d in compare(skipped, {})[0]] == ["ModelTest.test_rope"]


def test_each_source_has_its_row_and_our_own_tests_are_not_counted_as_transformers(outcomes):
    assert totals(outcomes, own=frozenset({"test_greedy_generate"})) == [
        ("test_pipeline_mixin.py", "BERT", 1, 1, 1, 0, 0),
        ("test_pipeline_mixin.py", "MyBERT", 1, 0, 0, 0, 1),
        ("test_modeling_common.py", "BERT", 1, 1, 1, 0, 0),
        ("test_modeling_common.py", "MyBERT", 1, 1, 0, 1, 0),
        ("ours, in place of its generation and export tests", "BERT", 1, 1, 1, 0, 0),
        ("ours, in place of its generation and export tests", "MyBERT", 1, 1, 1, 0, 0),
    ]


def test_a_test_that_only_one_family_has_is_refused(tmp_path):
    report = tmp_path / "junit.xml"
    report.write_text('<testsuite><testcase classname="a.BertModelTest" name="test_x"/></testsuite>', encoding="utf-8")
    with pytest.raises(SystemExit, match=r"ModelTest\.test_x"):
        read_outcomes(report)
