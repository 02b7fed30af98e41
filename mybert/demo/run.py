"""`mybert demo`: a page in the browser to try models."""

from mybert.common.errors import UserError
from mybert.demo.settings import DemoSettings


def serve(settings: DemoSettings, block: bool = True) -> str:
    """Loads the models and serves their page until it is interrupted.

    Args:
        block: whether to wait for the interruption.

    Returns:
        The address of the page.

    Raises:
        UserError: a checkpoint cannot be used, the port is taken, or Gradio is not installed.
    """
    from mybert.demo.page import build_page, launch

    page = build_page(settings.models, settings.device)
    try:
        return launch(page, settings.host, settings.port, block)
    except OSError as error:
        raise UserError(
            f"--port {settings.port} of {settings.host} is in use or not allowed, or the host is no address of this "
            "computer; name another --port, or 0 for a free one, or another --host"
        ) from error
