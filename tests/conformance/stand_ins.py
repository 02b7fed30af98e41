"""Small versions of test classes that the tests of the source distribution import but that it lacks.

The distribution has the files directly in `tests/`, but no folders in it. Each class has the name of one in a missing
folder; see `tree.py`.
"""

from transformers import pipeline

# tests/utils/test_configuration_utils.py: values that differ from every default of a configuration.
config_common_kwargs = {
    "architectures": ["OneArchitecture"],
    "chunk_size_feed_forward": 3,
    "dtype": "float16",
    "id2label": {0: "only"},
    "is_encoder_decoder": True,
    "label2id": {"only": 0},
    "output_attentions": True,
    "output_hidden_states": True,
    "problem_type": "multi_label_classification",
    "return_dict": False,
    "tie_word_embeddings": False,
}


class ExportTesterMixin:
    """tests/exporters/test_export.py; tests/model covers export."""


class GenerationTesterMixin:
    """tests/generation/test_utils.py; tests/model/test_decoder.py covers generation."""


class PipelineTests:
    """tests/pipelines/test_pipelines_….py: a pipeline accepts one text or several and returns the keys of its task."""

    task: str
    keys: set[str]
    options: dict = {}  # noqa: RUF012

    def get_test_pipeline(self, model, tokenizer, dtype="float32"):
        built = pipeline(self.task, model=model, tokenizer=tokenizer, dtype=dtype, **self.options)
        return built, [self.text(tokenizer, "The file is open."), self.text(tokenizer, "A string is returned by it.")]

    def text(self, tokenizer, text: str) -> str:
        return text

    def run_pipeline_test(self, built, examples):
        one, several = built(examples[0]), built(examples)
        assert len(several) == len(examples), several
        assert {key for row in _rows(one) for key in row} == self.keys, one


def _rows(output) -> list[dict]:
    if isinstance(output, dict):
        return [output]
    return [row for part in output for row in _rows(part)] if isinstance(output, list) else []


class FeatureExtractionPipelineTests(PipelineTests):
    task = "feature-extraction"
    keys = set()  # noqa: RUF012 - numbers without keys


class FillMaskPipelineTests(PipelineTests):
    task = "fill-mask"
    keys = {"score", "token", "token_str", "sequence"}  # noqa: RUF012

    def text(self, tokenizer, text: str) -> str:
        return text.replace("is", tokenizer.mask_token)


class TextClassificationPipelineTests(PipelineTests):
    task = "text-classification"
    keys = {"label", "score"}  # noqa: RUF012


class TextGenerationPipelineTests(PipelineTests):
    task = "text-generation"
    keys = {"generated_text"}  # noqa: RUF012


class TokenClassificationPipelineTests(PipelineTests):
    task = "token-classification"
    keys = {"entity", "score", "index", "word", "start", "end"}  # noqa: RUF012


class ZeroShotClassificationPipelineTests(PipelineTests):
    task = "zero-shot-classification"
    keys = {"sequence", "labels", "scores"}  # noqa: RUF012
    options = {"candidate_labels": ["files", "numbers"]}  # noqa: RUF012
