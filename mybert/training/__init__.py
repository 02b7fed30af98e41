"""The training layer shared by pretraining and fine-tuning: run folder, checkpoints, Trainer base class, log."""
