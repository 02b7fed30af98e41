"""What the source distribution's tests import but do not bring: small versions of our own, the same for both families.

The distribution holds the files right under `tests/` and none of its folders. Each class here stands in for one of a
missing folder, keeps its name, and tests the same promise by a few cases; see `run.py` for where each one goes.
"""

import torch
from transformers import pipeline, set_seed

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
    """tests/exporters/test_export.py: an exported program computes what the model computes, for another batch too."""

    def test_torch_export(self):
        for model_class in self.all_model_classes:
            with self.subTest(model_class.__name__):
                set_seed(0)
                config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
                config.use_cache = False  # a cache is no tensor that a program could return
                model = model_class(config).eval()
                inputs = self._prepare_for_class(inputs, model_class)
                batch = torch.export.Dim("batch", min=2, max=64)
                program = torch.export.export(
                    model, (), inputs, dynamic_shapes={name: {0: batch} for name in inputs}, strict=False
                )
                for rows in (inputs, {name: torch.cat([x, x[:3]]) for name, x in inputs.items()}):
                    with torch.no_grad():
                        expected, found = model(**rows), program.module()(**rows)
                    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-4)


class GenerationTesterMixin:
    """tests/generation/test_utils.py: the cache changes nothing, nor do padding and the strategy's bookkeeping."""

    def _generators(self):
        for model_class in self.all_generative_model_classes:
            set_seed(0)
            config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
            config.is_decoder, config.eos_token_id, config.pad_token_id = True, None, 0
            config.initializer_range = 0.5  # peaked scores: no ties
            prompt = inputs["input_ids"].clamp(min=1)
            yield model_class(config).eval(), {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}

    def _check_cache(self, **settings):
        for model, prompt in self._generators():
            settings = {"max_new_tokens": 6, "output_scores": True, "return_dict_in_generate": True, **settings}
            set_seed(1)
            cached = model.generate(**prompt, use_cache=True, **settings)
            set_seed(1)
            plain = model.generate(**prompt, use_cache=False, **settings)
            self.assertEqual(cached.sequences.tolist(), plain.sequences.tolist())
            torch.testing.assert_close(cached.scores, plain.scores, atol=1e-4, rtol=1e-4)
            self.assertEqual(cached.sequences.shape[1], prompt["input_ids"].shape[1] + 6)

    def test_greedy_generate(self):
        self._check_cache(do_sample=False)

    def test_sample_generate(self):
        self._check_cache(do_sample=True, top_k=20)

    def test_beam_search_generate(self):
        self._check_cache(do_sample=False, num_beams=3, num_return_sequences=2)

    def test_beam_sample_generate(self):
        self._check_cache(do_sample=True, num_beams=3)

    def test_generate_continues_from_past_key_values(self):
        for model, prompt in self._generators():
            whole = model.generate(**prompt, do_sample=False, max_new_tokens=6)
            half = model.generate(**prompt, do_sample=False, max_new_tokens=3, return_dict_in_generate=True)
            rest = model.generate(
                half.sequences,
                attention_mask=torch.ones_like(half.sequences),
                past_key_values=half.past_key_values,
                do_sample=False,
                max_new_tokens=3,
            )
            self.assertEqual(rest.tolist(), whole.tolist())

    def test_left_padding_compatibility(self):
        for model, prompt in self._generators():
            ids, mask = prompt["input_ids"], prompt["attention_mask"]
            padded = torch.nn.functional.pad(ids, (4, 0)), torch.nn.functional.pad(mask, (4, 0))
            positions = (padded[1].cumsum(1) - 1).clamp(min=0)
            with torch.no_grad():
                expected = model(ids, attention_mask=mask).logits[:, -1]
                found = model(padded[0], attention_mask=padded[1], position_ids=positions).logits[:, -1]
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)

    def test_generate_from_inputs_embeds(self):
        for model, prompt in self._generators():
            expected = model.generate(**prompt, do_sample=False, max_new_tokens=4)
            embeds = model.get_input_embeddings()(prompt["input_ids"])
            found = model.generate(
                inputs_embeds=embeds, attention_mask=prompt["attention_mask"], do_sample=False, max_new_tokens=4
            )
            self.assertEqual(found.tolist(), expected[:, prompt["input_ids"].shape[1] :].tolist())

    def test_generate_with_hidden_states_and_attentions(self):
        for model, prompt in self._generators():
            model.set_attn_implementation("eager")
            out = model.generate(
                **prompt,
                do_sample=False,
                max_new_tokens=3,
                return_dict_in_generate=True,
                output_hidden_states=True,
                output_attentions=True,
            )
            layers, length = self.model_tester.num_hidden_layers, prompt["input_ids"].shape[1]
            self.assertEqual([len(step) for step in out.hidden_states], [layers + 1] * 3)
            self.assertEqual([step[0].shape[1] for step in out.hidden_states], [length, 1, 1])
            self.assertEqual([step[0].shape[-2:] for step in out.attentions][1:], [(1, length + 1), (1, length + 2)])


# Tests that are ours alone; all others are transformers' own.
OWN_TESTS = frozenset(
    name for own in (ExportTesterMixin, GenerationTesterMixin) for name in vars(own) if name.startswith("test_")
)


class PipelineTests:
    """tests/pipelines/test_pipelines_….py: a pipeline takes one text or several, and says what its task promises."""

    task: str
    promised: set[str]
    options: dict = {}  # noqa: RUF012

    def get_test_pipeline(self, model, tokenizer, dtype="float32"):
        built = pipeline(self.task, model=model, tokenizer=tokenizer, dtype=dtype, **self.options)
        return built, [self.text(tokenizer, "The file is open."), self.text(tokenizer, "A string is returned by it.")]

    def text(self, tokenizer, text: str) -> str:
        return text

    def run_pipeline_test(self, built, examples):
        one, several = built(examples[0]), built(examples)
        assert len(several) == len(examples), several
        assert {key for row in _rows(one) for key in row} == self.promised, one


def _rows(output) -> list[dict]:
    if isinstance(output, dict):
        return [output]
    return [row for part in output for row in _rows(part)] if isinstance(output, list) else []


class FeatureExtractionPipelineTests(PipelineTests):
    task = "feature-extraction"
    promised = set()  # noqa: RUF012 - numbers without names


class FillMaskPipelineTests(PipelineTests):
    task = "fill-mask"
    promised = {"score", "token", "token_str", "sequence"}  # noqa: RUF012

    def text(self, tokenizer, text: str) -> str:
        return text.replace("is", tokenizer.mask_token)


class TextClassificationPipelineTests(PipelineTests):
    task = "text-classification"
    promised = {"label", "score"}  # noqa: RUF012


class TextGenerationPipelineTests(PipelineTests):
    task = "text-generation"
    promised = {"generated_text"}  # noqa: RUF012


class TokenClassificationPipelineTests(PipelineTests):
    task = "token-classification"
    promised = {"entity", "score", "index", "word", "start", "end"}  # noqa: RUF012


class ZeroShotClassificationPipelineTests(PipelineTests):
    task = "zero-shot-classification"
    promised = {"sequence", "labels", "scores"}  # noqa: RUF012
    options = {"candidate_labels": ["files", "numbers"]}  # noqa: RUF012
