"""`optimize_for_inference` compared with transformers' BERT, on any processor with oneDNN."""

import copy
import pickle
import weakref
from collections import OrderedDict

import pytest
import torch
from labelled_batches import batch
from torch import nn
from torch.nn.utils.prune import random_unstructured
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from twins import twins as twins_of

from modeling_mybert import MyBertModel
from mybert.inference.cpu import onednn, optimize_for_inference, prepacked

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")
PRODUCTS = 9
"""Of both layers: query, key and value (two in the last layer), output of attention, and two of feed-forward."""


@pytest.fixture(autouse=True)
def any_processor(monkeypatch):
    monkeypatch.setattr(onednn, "onednn_is_faster", lambda: True)
    # without instructions for bfloat16, oneDNN refuses to prepack weights of that type
    monkeypatch.setattr(prepacked, "has_bfloat16_products", torch.ops.mkldnn._is_mkldnn_bf16_supported)


@pytest.fixture
def twins(tiny_config):
    """transformers' BERT and an optimized MyBERT with the same weights."""
    theirs, ours = twins_of(tiny_config, std=0.2)
    return theirs, optimize_for_inference(ours)


class Prepacked(TorchDispatchMode):
    """Counts the products with prepacked weights."""

    def __enter__(self):
        self.count = 0
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.mkldnn._linear_pointwise.default:
            self.count += args[1].is_mkldnn
        self.count += function is torch.ops.mkldnn._linear_pointwise.binary
        return function(*args, **(kwargs or {}))


def outputs(model, **options):
    inputs, _ = batch("left", model.config.vocab_size)
    return model(**inputs, **options)


def assert_same(theirs, ours, prepacked=True):
    """Both give the same hidden states without gradients."""
    real = batch("left", theirs.config.vocab_size)[0]["attention_mask"].bool()
    with torch.no_grad(), Prepacked() as products:
        found = outputs(ours).last_hidden_state
    assert products.count == (PRODUCTS if prepacked else 0)
    torch.testing.assert_close(found[real], outputs(theirs).last_hidden_state[real], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("form", ["left", "packed", "full"])
def test_outputs_are_those_of_bert(twins, form):
    theirs, ours = twins
    inputs, _ = batch(form, theirs.config.vocab_size)
    if form == "packed":
        rows = inputs["input_ids"].split(inputs["cu_seq_lens_q"].diff().tolist(), dim=1)
        expected = torch.cat([theirs(row).last_hidden_state for row in rows], dim=1)
    else:
        expected = theirs(**inputs).last_hidden_state * inputs["attention_mask"][..., None]
    with torch.inference_mode(), Prepacked() as products:
        found = ours(**inputs).last_hidden_state
        some = ours(**inputs, tokens_to_keep=[3, 1, 14]).last_hidden_state
    assert products.count == 2 * PRODUCTS
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(some, found.flatten(0, 1)[[3, 1, 14]], atol=1e-5, rtol=1e-4)


def test_bfloat16_is_as_close_to_float32_as_transformers_bfloat16(twins):
    real = batch("left", twins[0].config.vocab_size)[0]["attention_mask"].bool()
    with torch.no_grad():
        exact = outputs(twins[0]).last_hidden_state[real]
        errors = [(outputs(x.bfloat16()).last_hidden_state[real] - exact).abs().mean() for x in twins]
    assert errors[1] < 1.5 * errors[0]


def dense(model) -> nn.Linear:
    return model.encoder.layer[1].output.dense


def negated(module: nn.Linear) -> nn.Linear:
    new = nn.Linear(module.in_features, module.out_features)
    new.load_state_dict({name: -value for name, value in module.state_dict().items()})
    return new


def train_with_the_fused_optimizer(model):
    """It does not count up the version of a weight."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    ids = torch.arange(5, 25).view(1, 20)
    model(input_ids=ids).last_hidden_state.pow(3).sum().backward()
    optimizer.step()


def write_to_data(model):
    dense(model).weight.data.mul_(-1)
    if isinstance(model, MyBertModel):
        optimize_for_inference(model)


CHANGES = {
    "a weight in place": lambda model: dense(model).weight.detach().mul_(-1),
    "a bias in place": lambda model: dense(model).bias.detach().add_(1),
    "in inference mode": torch.inference_mode()(lambda model: dense(model).weight.add_(0.3)),
    "loaded": lambda model: model.load_state_dict({name: x.flip(0) for name, x in model.state_dict().items()}),
    "another parameter": lambda model: setattr(dense(model), "weight", nn.Parameter(dense(model).weight.flip(1))),
    "another module": lambda model: setattr(model.encoder.layer[1].output, "dense", negated(dense(model))),
    # The rounded weights may get the addresses of the exact ones.
    "a round trip through bfloat16": lambda model: model.bfloat16().float(),
    "trained": train_with_the_fused_optimizer,
    "data": write_to_data,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_weights_are_used(twins, change):
    assert_same(*twins)
    for model in twins:
        change(model)
    assert_same(*twins)


def test_modules_replaced_twice_between_calls_are_used(twins):
    """The last one may get the address of the first."""
    theirs, ours = twins
    output = ours.encoder.layer[1].output
    for _ in range(20):
        assert_same(theirs, ours)
        for _ in range(2):
            output.dense = nn.Linear(output.dense.in_features, output.dense.out_features)
        theirs.encoder.layer[1].output.dense.load_state_dict(output.dense.state_dict())
    assert_same(theirs, ours)


def test_a_change_by_another_thread_while_weights_are_prepacked_is_noticed(twins, monkeypatch):
    theirs, ours = twins
    prepack = prepacked._prepack

    def interrupted(*args):
        layers = prepack(*args)
        CHANGES["a weight in place"](ours)
        return layers

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(prepacked, "_prepack", interrupted)
        outputs(ours)
    CHANGES["a weight in place"](theirs)
    assert_same(theirs, ours)


class Sine(nn.Module):
    """An adapter, such as LoRA's, around one linear layer."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x).sin()


def parametrize(layer):
    torch.nn.utils.parametrizations.weight_norm(layer.output.dense)
    layer.output.dense.parametrizations.weight.original0.data.mul_(2)


def change_activation(layer):
    layer.intermediate.activation = layer.intermediate.intermediate_act_fn = nn.ReLU()


def replace_forward(layer):
    dense = layer.intermediate.dense
    dense.forward = lambda x: 2 * nn.functional.linear(x, dense.weight, dense.bias)


def keep_weight_as_attribute(layer):
    """As FSDP does. PyTorch then calls it no parameter."""
    dense = layer.output.dense
    weight = dense.weight.detach()
    del dense.weight
    dense.weight = weight


OTHERS = {
    "an adapter": lambda layer: setattr(layer.attention.output, "dense", Sine(layer.attention.output.dense)),
    "pruning": lambda layer: random_unstructured(layer.output.dense, "weight", 0.5),
    "no bias": lambda layer: setattr(layer.output.dense, "bias", None),
    **{function.__name__: function for function in (parametrize, change_activation, replace_forward)},
    "a weight as an attribute": keep_weight_as_attribute,
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_modules_that_compute_something_else_are_called(twins, change):
    theirs, ours = twins
    assert_same(theirs, ours)
    for model in twins:
        torch.manual_seed(0)
        change(model.encoder.layer[0])
    assert_same(theirs, ours, prepacked=False)


def test_merged_adapters_are_used(twins, tmp_path):
    """PEFT merges by way of `weight.data`."""
    peft = pytest.importorskip("peft")
    theirs, ours = twins
    adapted = peft.get_peft_model(theirs, peft.LoraConfig(target_modules=["query"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path)
    theirs = adapted.merge_and_unload()
    with torch.no_grad():
        outputs(ours)
    ours = peft.PeftModel.from_pretrained(ours, tmp_path).merge_and_unload()
    assert_same(theirs, ours)


def test_dropout_that_is_switched_on_inside_is_computed(twins):
    ours = twins[1]
    for module in ours.encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
            module.train()
    with torch.no_grad():
        assert (outputs(ours).last_hidden_state - outputs(ours).last_hidden_state).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_graphs_and_training_in_them_are_those_of_a_plain_model(twins, dtype):
    ours = twins[1].to(dtype)
    plain = copy.deepcopy(ours)
    plain.encoder.prepacked = None
    ids = torch.arange(5, 45).view(2, 20)
    with torch.no_grad():
        ours(input_ids=ids)
    for model in (ours, plain):
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        compiled(input_ids=ids).last_hidden_state.sum().backward()
        torch.optim.AdamW(model.parameters(), lr=0.1, fused=True).step()
    with torch.no_grad():
        found, expected = (model(input_ids=ids).last_hidden_state for model in (ours, plain))
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 0.1}[dtype]
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def test_hooks_gradients_attentions_and_training_work_as_before(twins):
    theirs, ours = twins
    real = batch("left", theirs.config.vocab_size)[0]["attention_mask"].bool()
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        found, expected = (outputs(model, output_attentions=True).attentions for model in reversed(twins))
    for ours_, theirs_ in zip(found, expected, strict=True):
        keys = real[:, None, None, :] & real[:, None, :, None]
        torch.testing.assert_close(ours_ * keys, theirs_ * keys, atol=1e-5, rtol=1e-4)
    slopes = []
    for model in twins:
        weight = model.encoder.layer[0].attention.self.key.weight
        loss = (outputs(model).last_hidden_state[real] ** 3).sum()
        slopes.append(torch.autograd.grad(loss, weight)[0])
    torch.testing.assert_close(slopes[1], slopes[0], atol=1e-3, rtol=1e-3)
    calls = []
    ours.encoder.layer[1].output.dense.register_forward_hook(lambda *_: calls.append(1))
    assert_same(theirs, ours, prepacked=False)
    assert calls == [1]


def test_a_hook_on_the_encoder_gets_the_padded_form(twins):
    theirs, ours = twins
    assert_same(theirs, ours)
    shapes = []
    ours.encoder.register_forward_hook(lambda module, args, output: shapes.append(output.last_hidden_state.shape))
    assert_same(theirs, ours, prepacked=False)
    assert shapes == [(4, 12, ours.config.hidden_size)]


def test_hooks_are_called_after_all_hooks_were_removed_by_assignment(twins):
    theirs, ours = twins
    assert_same(theirs, ours)
    calls = []
    dense = ours.encoder.layer[0].output.dense
    dense._forward_hooks = OrderedDict()
    dense.register_forward_hook(lambda *_: calls.append(1))
    assert_same(theirs, ours, prepacked=False)
    assert calls == [1]


def test_a_compiled_encoder_contains_no_prepacked_products(twins):
    theirs, ours = twins
    targets = []

    def backend(graph, inputs):
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    ours.encoder.compile(backend=backend)
    ids = torch.arange(5, 25).view(1, 20)
    with torch.no_grad():
        found = ours(input_ids=ids).last_hidden_state
    assert targets
    assert not any("mkldnn" in target for target in targets)
    torch.testing.assert_close(found, theirs(input_ids=ids).last_hidden_state, atol=1e-5, rtol=1e-4)


class Around(nn.Module):
    """A module of the user around another."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)


def test_the_encoder_and_the_word_embeddings_may_be_wrapped(twins):
    theirs, ours = twins
    ours.embeddings.word_embeddings = Around(ours.embeddings.word_embeddings)
    assert_same(theirs, ours)
    ours.encoder = Around(ours.encoder)
    assert_same(theirs, ours)


def test_a_deleted_model_frees_its_weights_without_garbage_collection(twins):
    model = copy.deepcopy(twins[1])
    assert_same(twins[0], model)
    weight = weakref.ref(model.encoder.layer[0].output.dense.weight)
    del model
    assert weight() is None


def test_autocast_and_mkldnn_switched_off_compute_as_before(twins):
    theirs, ours = twins
    with torch.backends.mkldnn.flags(enabled=False):
        assert_same(theirs, ours, prepacked=False)
    plain = MyBertModel(ours.config).eval()
    plain.load_state_dict(ours.state_dict())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(outputs(ours).last_hidden_state, outputs(plain).last_hidden_state, rtol=0, atol=0)


def test_copies_and_checkpoints_are_those_of_a_plain_model(twins, tmp_path):
    theirs, ours = twins
    assert_same(theirs, ours)
    assert list(ours.state_dict()) == list(MyBertModel(ours.config).state_dict())
    ours.save_pretrained(tmp_path)
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert_same(theirs, copied)
    assert_same(theirs, MyBertModel.from_pretrained(tmp_path), prepacked=False)


@pytest.mark.parametrize("setting", [{"hidden_act": "relu"}, {"chunk_size_feed_forward": 3}])
def test_other_kinds_of_layers_call_their_modules(tiny_config, setting):
    for name, value in setting.items():
        setattr(tiny_config, name, value)
    model = optimize_for_inference(MyBertModel(tiny_config).eval())
    with torch.no_grad(), Prepacked() as products:
        outputs(model)
    assert products.count == 0


@pytest.mark.parametrize("backend", ["sdpa", "eager", "counted"])
def test_one_sequence_is_computed_by_the_chosen_attention(twins, backend):
    theirs, ours = twins
    calls = []

    def counted(*args, **kwargs):
        calls.append(1)
        return ALL_ATTENTION_FUNCTIONS["sdpa"](*args, **kwargs)

    AttentionInterface.register("counted", counted)
    ours.set_attn_implementation(backend)
    ids = torch.arange(5, 25).view(1, 20)
    with torch.no_grad(), Prepacked() as products:
        found = ours(input_ids=ids).last_hidden_state
        some = ours(input_ids=ids, tokens_to_keep=[7, 3]).last_hidden_state
    assert products.count == 2 * PRODUCTS
    assert len(calls) == (2 * ours.config.num_hidden_layers if backend == "counted" else 0)
    expected = theirs(input_ids=ids).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(some, expected[0, [7, 3]], atol=1e-5, rtol=1e-4)
