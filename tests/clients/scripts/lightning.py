"""Lightning: training in a LightningModule."""

import lightning
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

PACKAGES = ["lightning==2.6.6"]
MODEL = "BertForSequenceClassification"


class Classifier(lightning.LightningModule):
    def __init__(self, folder: str, remote: bool):
        super().__init__()
        self.model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=remote)
        self.losses = []

    def training_step(self, batch: dict) -> torch.Tensor:
        loss = self.model(**batch).loss
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = dict(tokenizer(texts, padding=True, return_tensors="pt")) | {"labels": torch.arange(len(texts)) % 3}
    model = Classifier(folder, remote)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(max_epochs=3, accelerator="cpu", **quiet).fit(
        model, torch.utils.data.DataLoader([rows], batch_size=None)
    )
    return [model.losses]
