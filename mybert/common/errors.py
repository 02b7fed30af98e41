"""The exception for user mistakes."""


class UserError(ValueError):
    """A mistake in the input, the settings or the environment.

    The message states the expected and the found value (with file, line or field) and the remedy. The command line
    prints it as one line and exits with status 2, without a stack trace. Docstrings list it for the public functions
    only.
    """
