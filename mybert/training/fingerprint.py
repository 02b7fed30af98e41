"""Fingerprint of a run: the settings, arguments and inputs that must not change when it is resumed."""

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from transformers import TrainingArguments

from mybert.common.errors import UserError

FREE_SETTINGS = frozenset({"output", "resume", "overwrite", "dry_run", "attn_implementation"})
FREE_ARGUMENTS = frozenset(
    (
        # where the output goes
        *("output_dir", "overwrite_output_dir", "run_name", "project", "report_to", "logging_dir"),
        *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
        *("push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push"),
        "hub_revision",
        # what is logged and saved, and when
        *("logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node", "logging_nan_inf_filter"),
        *("log_level", "log_level_replica", "disable_tqdm", "include_num_input_tokens_seen", "skip_memory_metrics"),
        *("save_only_model", "save_strategy", "save_steps", "save_on_each_node", "save_total_limit"),
        *("enable_jit_checkpoint", "include_for_metrics", "debug", "restore_callback_states_from_checkpoint"),
        # how evaluation computes
        *("per_device_eval_batch_size", "eval_accumulation_steps", "eval_do_concat_batches"),
        *("eval_use_gather_object", "batch_eval_metrics", "prediction_loss_only", "bf16_full_eval", "fp16_full_eval"),
        # where and how a step is computed; `sequences_per_step` stands for the first two
        *("per_device_train_batch_size", "gradient_accumulation_steps", "use_cpu", "accelerator_config"),
        *("local_rank", "parallelism_config", "deepspeed", "fsdp", "fsdp_config", "full_determinism", "tf32"),
        *("ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph"),
        *("ddp_backend", "ddp_timeout", "torch_compile", "torch_compile_backend", "torch_compile_mode"),
        *("torch_empty_cache_steps", "activation_checkpointing", "activation_checkpointing_kwargs"),
        *("gradient_checkpointing", "gradient_checkpointing_kwargs"),
        *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
        *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "dataloader_in_order"),
        # not used by either training
        *("do_train", "do_eval", "do_predict", "use_cache", "remove_unused_columns", "resume_from_checkpoint"),
    )
)


@dataclass(frozen=True)
class RunFingerprint:
    """The settings, arguments and inputs that must not change on resume; all except those declared free.

    Attributes:
        choices: name and value of the settings and arguments.
        inputs: name of each input, its path and fingerprint; see `mybert.common.manifest.identity`.
    """

    choices: dict[str, Any]
    defaults: dict[str, Any]
    inputs: dict[str, dict]

    @classmethod
    def of(
        cls,
        settings: Any,
        arguments: TrainingArguments,
        inputs: Mapping[str, dict],
        free: Collection[str],
        fixed: Collection[str] = (),
    ) -> "RunFingerprint":
        """
        Args:
            settings: the settings dataclass of the stage.
            inputs: see the attribute; the settings of these names are compared by content.
            free: names of further settings and arguments that may change.
            fixed: names of arguments that other trainings may change and this one may not.
        """
        given = dataclasses.asdict(settings) | arguments.to_dict()
        given["sequences_per_step"] = (
            arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
        )
        free = (FREE_SETTINGS | FREE_ARGUMENTS | set(free) | inputs.keys()) - set(fixed)
        defaults = {
            field.name: field.default
            for field in (*dataclasses.fields(settings), *dataclasses.fields(arguments))
            if field.default is not dataclasses.MISSING
        }
        choices = {name: value for name, value in given.items() if name not in free}
        return cls(_as_json(choices), _as_json({name: defaults.get(name) for name in choices}), dict(inputs))

    def check_same(self, manifest: Mapping[str, Any]) -> None:
        """Compares this run with the one that wrote `manifest`; the inputs may have moved."""
        started = manifest.get("choices", {})
        for name, value in self.choices.items():
            before = started.get(name, self.defaults[name])
            if before != value:
                flag = name if name == "sequences_per_step" else f"--{name.replace('_', '-')}"
                raise UserError(
                    f"--resume: {flag} is {value!r}, the run was started with {before!r}; repeat that value, or "
                    "start another run with --overwrite or in another folder"
                )
        inputs = manifest.get("inputs", {})
        for name in sorted(inputs.keys() | self.inputs.keys()):
            if _content(inputs.get(name, {})) != _content(self.inputs.get(name, {})):
                raise UserError(
                    f"--resume: --{name.replace('_', '-')} {self.inputs.get(name, {}).get('path')} has other content "
                    "than the run was started with; name that input, or start another run with --overwrite or in "
                    "another folder"
                )


def _as_json(values: dict) -> dict:
    """The values as a manifest returns them; enumerations by their plain value."""
    return json.loads(json.dumps(values, default=lambda value: getattr(value, "value", str(value))))


def _content(identity: dict) -> str | None:
    return identity.get("sha256", identity.get("path"))
