"""`mybert demo`: a page in the browser to try models."""

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
        raise settings.refused(error) from error
