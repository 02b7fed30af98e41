"""What `--help` shows: one spelling of each flag, our own settings in full, transformers' hundred only when asked."""

import argparse
import copy
import dataclasses
import inspect


class PlainHelp(argparse.ArgumentDefaultsHelpFormatter):
    """One spelling of each flag, with hyphens, and no default where there is none."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        shown = copy.copy(action)
        shown.option_strings = [flag for flag in action.option_strings if "_" not in flag]
        return super()._format_action_invocation(shown)

    def _get_help_string(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._StoreFalseAction):  # transformers gives it the help of what it switches off
            return f"Switches --{action.dest.replace('_', '-')} off."
        if action.required and action.option_strings:
            return f"{action.help} (required)"
        has_none = action.required or action.default in (None, "", argparse.SUPPRESS)
        return action.help if has_none else super()._get_help_string(action)


def short_usage(parser: argparse.ArgumentParser) -> str:
    """The usage line, with no more than what must be given."""
    words = [parser.prog]
    for action in parser._actions:
        if action.required and not action.option_strings:
            words.append(action.metavar + (" …" if action.nargs == "+" else ""))
        elif action.required:
            words.append(f"{action.option_strings[0]} {action.dest.upper()}")
    return " ".join([*words, "[--option VALUE …]"])


_MUCH_USED = {"num_train_epochs", "max_steps", "save_steps", "seed", "bf16"}  # of another library's fields


def inherited_fields(settings: type) -> set[str]:
    """Names of the fields that a dataclass takes over unchanged from one of another library, but for the commonest."""
    foreign = {field.name for field in dataclasses.fields(settings) if "positional" not in field.metadata}
    return foreign - inspect.get_annotations(settings).keys() - _MUCH_USED
