"""The one exception that a user is meant to read."""


class UserError(ValueError):
    """A mistake in what the user gave: input, setting or environment.

    The message says what was expected, what was found (file, line or field) and the remedy. The command line prints it
    as one line and exits with status 2, without a stack trace.
    """
