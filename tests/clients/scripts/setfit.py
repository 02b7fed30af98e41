"""SetFit: few-shot training."""

from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments

PACKAGES = ["setfit==1.2.0"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = SetFitModel.from_pretrained(folder, trust_remote_code=remote, device="cpu")
    rows = Dataset.from_dict({"text": texts, "label": [0, 1] * (len(texts) // 2)})
    arguments = TrainingArguments("trained", max_steps=3, batch_size=4, num_epochs=1, report_to="none")
    Trainer(model=model, args=arguments, train_dataset=rows).train()
    return [model.predict_proba(texts)]
