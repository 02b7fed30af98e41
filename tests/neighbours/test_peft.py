"""LoRA of PEFT on every head: only its weights are trained, and merging does not change the output."""

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model

import modeling_mybert

TASKS = {
    "MyBertModel": TaskType.FEATURE_EXTRACTION,
    "MyBertForSequenceClassification": TaskType.SEQ_CLS,
    "MyBertForTokenClassification": TaskType.TOKEN_CLS,
    "MyBertForQuestionAnswering": TaskType.QUESTION_ANS,
}


def lora(head: str) -> LoraConfig:
    return LoraConfig(task_type=TASKS.get(head), r=4, target_modules=["query", "value"], lora_dropout=0.1)


def outputs(model, batch: dict) -> list[torch.Tensor]:
    """All outputs but losses."""
    with torch.no_grad():
        found = model.eval()(**batch)
    return [value for name, value in found.items() if "loss" not in name]


def loss_of(model, batch: dict) -> torch.Tensor:
    found = model(**batch)
    return found.loss if "loss" in found else found.pooler_output.square().mean()


def train(model, batch: dict):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(8):
        loss_of(model.train(), batch).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_lora_trains_only_its_weights_and_merging_keeps_the_outputs(head, bert_folders, inputs_of, tmp_path):
    torch.manual_seed(0)
    model_class, batch = getattr(modeling_mybert, head), inputs_of(head)
    plain = model_class.from_pretrained(bert_folders(head))
    before = outputs(plain, batch)
    adapted = get_peft_model(model_class.from_pretrained(bert_folders(head)), lora(head))
    assert all(torch.equal(a, b) for a, b in zip(before, outputs(adapted, batch), strict=True))
    first = loss_of(adapted.eval(), batch)
    train(adapted, batch)
    assert loss_of(adapted.eval(), batch) < first

    after = outputs(adapted, batch)
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(before, after, strict=True))
    encoder = plain if head == "MyBertModel" else plain.bert
    for name, weight in encoder.state_dict().items():
        place = name.replace(".query.", ".query.base_layer.").replace(".value.", ".value.base_layer.")
        kept = next(value for key, value in adapted.state_dict().items() if key.endswith(place))
        assert torch.equal(weight, kept), name

    adapted.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(model_class.from_pretrained(bert_folders(head)), tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(after, outputs(again, batch), strict=True))
    merged = adapted.merge_and_unload()
    assert type(merged) is model_class
    assert all((a - b).abs().max() < 1e-4 for a, b in zip(after, outputs(merged, batch), strict=True))
    assert set(merged.state_dict()) == set(plain.state_dict())


def test_peft_adapts_the_modules_that_it_adapts_in_bert(tiny_config):
    trained = get_peft_model(modeling_mybert.MyBertForMaskedLM(tiny_config), LoraConfig()).state_dict()
    adapted = {name.split(".lora_A")[0].split(".")[-1] for name in trained if ".lora_A" in name}
    assert adapted == {"query", "value"}
    model = modeling_mybert.MyBertForMaskedLM(tiny_config)
    trained = get_peft_model(model, LoraConfig(target_modules="all-linear")).state_dict()
    assert any("intermediate.dense.lora_A" in name for name in trained)


def test_an_adapter_works_on_packed_batches(bert_folders):
    model = modeling_mybert.MyBertForTokenClassification.from_pretrained(bert_folders("MyBertForTokenClassification"))
    adapted = get_peft_model(model, lora("MyBertForTokenClassification")).eval()
    ids = torch.randint(1000, 2000, (1, 12))
    with torch.no_grad():
        packed = adapted(input_ids=ids, cu_seq_lens_q=torch.tensor([0, 7, 12], dtype=torch.int32), max_length_q=7)
        alone = torch.cat([adapted(input_ids=ids[:, :7]).logits, adapted(input_ids=ids[:, 7:]).logits], dim=1)
    assert (packed.logits - alone).abs().max() < 1e-4
