"""`mybert push`: a checkpoint → a repository of the Hub that works for a stranger at the first try."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from mybert.common.errors import UserError
from mybert.common.hub import check_reachable
from mybert.common.tables import print_table
from mybert.release.card.escaping import one_line
from mybert.release.card.model_card import write_card
from mybert.release.hub.bundle import Bundle, make_bundle
from mybert.release.hub.hub_errors import explained
from mybert.release.hub.publish import Published, check_login, check_upload, publish, tag
from mybert.release.settings import PushSettings

if TYPE_CHECKING:
    from huggingface_hub import ModelCard

    from mybert.release.hub.verify import Expected

NOT_VERIFIED = "It was uploaded without being verified (`--no-verify`)."


def push(settings: PushSettings) -> Published | None:
    """Bundles the checkpoint, verifies the bundle, publishes it, downloads it and verifies that.

    Returns:
        What was published; None for a dry run.

    Raises:
        UserError: the checkpoint would not work for others, or could not be published. The repository then is as it
            was, unless the message says that the commit is complete.
    """
    if not settings.dry_run:
        check_login()  # before the minutes that verifying may take
        check_reachable(settings.repo_id)
    with tempfile.TemporaryDirectory(prefix="mybert-push-") as scratch:
        with explained(settings.repo_id, "nothing was sent"):
            folder = Path(scratch) / "bundle"
            folder.mkdir()
            bundle = make_bundle(settings, folder)
            classes = [name for name in bundle.config["auto_map"] if name.startswith("AutoModel")]
            expected, checked = None, NOT_VERIFIED
            if settings.verify:
                print(
                    f"Verifying: clean processes load the bundle with trust_remote_code=True, which runs the code in "
                    f"{settings.checkpoint}; without that: --no-verify",
                    flush=True,
                )
                expected, checked = _verify_bundle(bundle, classes)
            pin = _pin(settings, bundle)
            card = _card(bundle, settings, pin, checked)
        if settings.dry_run:
            _print_plan(bundle, settings)
            print(f"\n{card}")
            return None
        published = publish(bundle, settings, pin)
        if expected is not None:
            with explained(settings.repo_id, f"commit {published.commit[:12]} is complete, only its check is missing"):
                _verify_upload(bundle, settings, published, classes, expected, Path(scratch) / "home")
        if not settings.create_pr and not settings.pull_request:
            tag(settings, published, pin)
        _print_result(bundle, settings, published, pin)
        return published


def main(settings: PushSettings) -> None:
    if published := push(settings):
        print(f"the model is at {published.url}")


def _card(bundle: Bundle, settings: PushSettings, pin: str, checked: str) -> "ModelCard":
    """
    Raises:
        UserError: the records that it is made of are not as MyBERT wrote them.
    """
    try:
        return write_card(bundle, settings, pin, checked)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"manifest.json or results.json in {bundle.source} is not as MyBERT writes it ({error}): the card "
            "cannot be made; restore it, or leave it out: --exclude results.json manifest.json"
        ) from error


def _pin(settings: PushSettings, bundle: Bundle) -> str:
    """What the card's examples load: a tag of this upload; the branch where no tag can be set yet."""
    if settings.create_pr or settings.pull_request:
        return settings.revision
    return settings.tag or bundle.content_name()


def _verify_bundle(bundle: Bundle, classes: list[str]) -> "tuple[Expected, str]":
    """What the checkpoint says, and a sentence for the card."""
    from mybert.release.hub.verify import Expected, verify, verify_plain_bert

    expected = Expected.of(bundle.source)
    verify(str(bundle.folder), expected, classes)
    difference = verify_plain_bert(bundle.folder)
    by = f"{len(classes)} Auto classes" if len(classes) > 1 else classes[0]
    said = (
        f"Before the upload, a process with torch and transformers alone loaded it by {by}; "
        "the outputs of the saved head, and those of the encoder, were the checkpoint's to the last bit."
    )
    if difference is not None:
        said += f" As plain BERT, loaded by transformers' own class, its outputs differ by {difference:.1g} at most."
    return expected, said


def _verify_upload(
    bundle: Bundle,
    settings: PushSettings,
    published: Published,
    classes: list[str],
    expected: "Expected",
    home: Path,
) -> None:
    """The same for what a stranger downloads at that commit."""
    from mybert.release.hub.verify import verify

    check_upload(bundle, settings, published, home)
    try:
        verify(settings.repo_id, expected, classes, revision=published.commit, home=home)
    except UserError as error:
        raise UserError(f"commit {published.commit[:12]} is in the repository, but {error}; do not use it") from error


def _print_plan(bundle: Bundle, settings: PushSettings) -> None:
    sizes = [(name, path.stat().st_size) for name, path in bundle.files().items()]
    rows = [*sizes, ("in all", sum(size for _, size in sizes))]
    print_table(f"{settings.checkpoint} → {settings.repo_id} (nothing is sent)", rows, ("file", "bytes"))
    _print_notes(bundle)


def _print_result(bundle: Bundle, settings: PushSettings, published: Published, pin: str) -> None:
    rows = [
        ("repository", f"{settings.repo_id}, {'private' if published.private else 'public'}"),
        ("branch", "a new pull request" if settings.create_pr else settings.revision),
        ("commit", published.commit),
        ("load with revision", pin),
        ("files", len(bundle.files())),
        ("verified", "before and after the upload" if settings.verify else "no (--no-verify)"),
    ]
    print_table("Published", rows)
    _print_notes(bundle)


def _print_notes(bundle: Bundle) -> None:
    for note in bundle.notes:
        print(note)
    if bundle.left_out:
        tops = Counter(f"{top}/" if below else top for top, _, below in (n.partition("/") for n in bundle.left_out))
        names = (f"{top} ({number} files)" if number > 1 else top for top, number in tops.items())
        print(one_line(f"left out: {', '.join(names)}"))
