"""Is this the same run? The settings, arguments and inputs that determine a result, of which a run is resumed."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mybert.artifacts.manifest import versions
from mybert.common.errors import UserError

_FREE = {"output", "resume", "overwrite", "dry_run", "engine", "num_proc", "attn_implementation"}


@dataclass(frozen=True)
class RunFingerprint:
    """What must not change when a run is resumed: all settings but those that are `free`.

    Attributes:
        choices: name and value of the settings and arguments.
        inputs: name of each input, with `sha256`, `path` or what else tells it from others.
        defaults: values of the choices that a stored fingerprint lacks.
        versions: versions of the packages; parts that other versions have computed are not used.
    """

    choices: dict[str, Any]
    inputs: dict[str, Any]
    defaults: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions)

    @classmethod
    def of(
        cls, settings: Any, inputs: Mapping[str, Any], arguments: Any = None, decisive: Mapping[str, Any] | None = None
    ) -> "RunFingerprint":
        """
        Args:
            settings: the settings dataclass of a stage; its class attribute `free` names the settings and training
                arguments that do not change the result.
            inputs: see the attribute; the settings of these names are compared by content.
            arguments: the training arguments, for their defaults.
            decisive: further values that determine the result, as `decisive_arguments`.
        """
        free = {*_FREE, *getattr(settings, "free", ()), *inputs}
        given = dataclasses.asdict(settings) | dict(decisive or {})
        choices = {name: value for name, value in given.items() if name not in free}
        fields = [*dataclasses.fields(settings), *(dataclasses.fields(arguments) if arguments else ())]
        defaults = {entry.name: entry.default for entry in fields if entry.default is not dataclasses.MISSING}
        return cls(_as_json(choices), _as_json(inputs), _as_json({name: defaults.get(name) for name in choices}))

    def as_dict(self) -> dict[str, Any]:
        """For `differences` with a later run."""
        return {"choices": self.choices, "inputs": self.inputs, "versions": self.versions}

    @property
    def digest(self) -> str:
        """A hash of choices and inputs, for the manifest."""
        return hashlib.sha256(json.dumps([self.choices, self.inputs], sort_keys=True).encode()).hexdigest()

    def check_same(self, started: Mapping[str, Any]) -> None:
        """Raises a UserError if this run differs from the one that wrote the manifest; the inputs may have moved."""
        self._check_inputs(started.get("inputs", {}))  # first: other rows have other default settings
        before = started.get("choices", {})
        for name in self.changed_choices(before):
            flag = name if name == "sequences_per_step" else f"--{name.replace('_', '-')}"
            raise UserError(
                f"--resume: {flag} is {self.choices[name]!r}, the run was started with "
                f"{before.get(name, self.defaults.get(name))!r}; repeat that value, or start another run with "
                "--overwrite or in another folder"
            )

    def _check_inputs(self, before: Mapping[str, Any]) -> None:
        """Raises a UserError that names the files of an option whose contents differ."""
        for name in self.changed_inputs(before):
            option = _option(name)
            now, then = (_paths(inputs, option) for inputs in (self.inputs, before))
            if not then:
                message = f"{now} was not given when the run was started; leave it out"
            elif not now:
                message = f"is not given, and the run was started with {then}; name it again"
            elif now == then:
                message = f"{now} has other content than when the run was started; restore it"
            else:
                message = f"{now} has other content than {then}, with which the run was started; name that input"
            raise UserError(
                f"--resume: {option} {message}, or start another run with --overwrite or in another folder"
            )

    def differences(self, started: Mapping[str, Any]) -> list[str]:
        """What differs from the run of a dictionary as of `as_dict`; empty for the same run."""
        if not all(isinstance(started.get(name), dict) for name in ("choices", "inputs")):
            return ["settings"]
        names = [*self.changed_choices(started["choices"]), *self.changed_inputs(started["inputs"])]
        names += ["versions"] if started.get("versions") != self.versions else []
        return [name.replace("_", " ") for name in names]

    def changed_choices(self, before: Mapping[str, Any]) -> list[str]:
        """The names of the choices whose values differ."""
        return [name for name, value in self.choices.items() if before.get(name, self.defaults.get(name)) != value]

    def changed_inputs(self, before: Mapping[str, Any]) -> list[str]:
        """The names of the inputs whose contents differ."""
        names = sorted(before.keys() | self.inputs.keys())
        return [name for name in names if _content(before.get(name)) != _content(self.inputs.get(name))]


def _option(name: str) -> str:
    """The option that an input was given by: --train for `train` and `train-2`. Texts of `input-0` have none."""
    kind = re.sub(r"-[0-9]+$", "", name)
    return "the text" if kind == "input" else f"--{kind.replace('_', '-')}"


def _paths(inputs: Mapping[str, Any], option: str) -> str:
    """The paths of the inputs of an option; empty if there are none."""
    entries = [entry for name, entry in inputs.items() if _option(name) == option]
    return " ".join(str(entry.get("path")) if isinstance(entry, dict) else str(entry) for entry in entries)


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as a manifest returns them; enumerations by their plain value."""
    return json.loads(json.dumps(values, default=lambda value: getattr(value, "value", str(value))))


def _content(entry: Any) -> Any:
    """What tells an input from others: its fingerprint, if it has one; its path; or the whole entry."""
    return entry.get("sha256", entry.get("path")) if isinstance(entry, dict) else entry
