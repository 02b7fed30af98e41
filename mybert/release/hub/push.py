"""`mybert push`: publish a checkpoint on the Hugging Face Hub."""

import tempfile
from collections import Counter
from pathlib import Path

from huggingface_hub import ModelCard

from mybert.artifacts.staging import report_full_disk
from mybert.common.errors import UserError
from mybert.common.hub import check_reachable
from mybert.common.quantities import counted, with_unit
from mybert.common.tables import print_table
from mybert.release.card.markdown_escaping import one_line
from mybert.release.card.model_card import write_card
from mybert.release.hub.bundle import Bundle, make_bundle
from mybert.release.hub.bundle_checks import is_code
from mybert.release.hub.publish import Published, check_login, check_upload, hub_errors, publish, set_tags
from mybert.release.hub.space import check_space, publish_space, requirements, write_space
from mybert.release.hub.verify import compare_with_bert, verify, write_reference
from mybert.release.settings import PushSettings

_LONG_SECTIONS = ("How to use", "Citation")  # of the card
NOT_VERIFIED = "This upload was not verified (`--no-verify`)."

_EXAMPLES = {
    **dict.fromkeys(("text-classification", "token-classification"), "one of each class"),
    **dict.fromkeys(("sentence-similarity", "text-ranking"), "a query and passages"),
}
"""Texts that show what a model does, by its task on the Hub."""


def push(settings: PushSettings) -> Published | None:
    """Bundles a checkpoint, verifies the bundle, publishes it, downloads it and verifies the download.

    Returns:
        The commit; None for a dry run.

    Raises:
        UserError: others could not use the checkpoint, or it could not be published. The repository is unchanged
            unless the message says that the commit is complete.
    """
    if not settings.dry_run:
        check_login()  # before verification, which can take minutes
        check_reachable(settings.repo_id)
    if settings.space is not None:
        requirements()
    with tempfile.TemporaryDirectory(prefix="mybert-push-") as scratch:
        reference, sentence = Path(scratch) / "reference", NOT_VERIFIED
        with report_full_disk(scratch, remedy="free some space, or set TMPDIR to another disk; nothing was sent"):
            bundle = make_bundle(settings, Path(scratch) / "bundle")
            if settings.verify:
                print(
                    f"Verifying: a clean process runs the code in {settings.model} (trust_remote_code=True); "
                    "--no-verify skips this",
                    flush=True,
                )
                sentence = verify_bundle(bundle, reference)
            pin = settings.revision  # where no tag can be set
            if not (settings.create_pr or settings.pull_request):
                pin = settings.tag or bundle.content_tag()
            card = make_card(bundle, settings, pin, sentence)
            space = Path(scratch) / "space"
            if settings.space is not None:
                write_space(bundle, settings, space)
                if settings.verify:
                    print(f"Running the Space {settings.space} in a clean process", flush=True)
                    check_space(space)
                size = sum(path.stat().st_size for path in space.rglob("*") if path.is_file())
                bundle.notes.append(f"Space {settings.space}: {size:,} bytes with the model")
        if settings.dry_run:
            _print_plan(bundle, settings)
            sections = str(card).rstrip().split("\n## ")  # without those that are much the same for every model
            shown = "\n## ".join(section for section in sections if not section.startswith(_LONG_SECTIONS))
            print(f"\n{shown}\n\nnot shown: the sections {' and '.join(_LONG_SECTIONS)} of the card\n")
            if missing := [f"--{name}" for name in ("license", "language") if not getattr(settings, name)]:
                print(f"the card lacks metadata: add {' and '.join(missing)}")
            if not settings.example and (advice := _EXAMPLES.get(card.data.get("pipeline_tag"))):
                print(f"the card has general examples: add --example with texts of your own, such as {advice}")
            return None
        published = publish(bundle, settings, pin)
        if settings.verify:
            verify_upload(bundle, settings, published, reference, Path(scratch) / "home")
        if pin != settings.revision:
            set_tags(bundle, settings, published)
        demo = publish_space(space, settings) if settings.space is not None else None
        _print_result(bundle, settings, published, pin)
        if demo:
            print(f"the demo is at {demo}")
        return published


def make_card(bundle: Bundle, settings: PushSettings, pin: str, sentence: str) -> ModelCard:
    """`write_card`, with one line for records that MyBERT did not write."""
    try:
        return write_card(bundle, settings, pin, sentence)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"manifest.json or results.json in {bundle.source} has an unknown structure ({error}); restore it, or "
            "leave it out by --exclude"
        ) from error


def verify_bundle(bundle: Bundle, reference: Path) -> str:
    """Verifies the bundle before the upload, writes its outputs to `reference`; returns a sentence for the card."""
    classes = bundle.auto_classes
    write_reference(bundle.source, reference)
    verify(str(bundle.folder), reference, classes)
    sentence = (
        f"Before the upload, a process with only torch and transformers loaded it with {', '.join(classes)}. "
        "The outputs of the saved head and of the encoder are equal to those of the checkpoint, bit for bit."
    )
    difference = compare_with_bert(bundle.folder)
    if difference is not None:
        sentence += f" Without remote code, the largest difference of the outputs is {difference:.1g}."
    return sentence


def verify_upload(bundle: Bundle, settings: PushSettings, published: Published, reference: Path, home: Path) -> None:
    """Downloads the commit into the empty Hub cache `home` and verifies it in the same way."""
    commit = published.commit[:12]
    with hub_errors(f"commit {commit} is complete, but not verified"):
        check_upload(bundle, settings, published, home)
    try:
        verify(settings.repo_id, reference, bundle.auto_classes, revision=published.commit, home=home)
    except UserError as error:
        raise UserError(f"commit {commit} is complete, but {error}; do not use it") from error


def _print_plan(bundle: Bundle, settings: PushSettings) -> None:
    sizes: Counter[str] = Counter()
    for name, path in bundle.files().items():
        sizes["code of the model (*_mybert.py)" if is_code(Path(name)) else name] += path.stat().st_size
    sizes["total"] = sizes.total()
    print_table(f"{settings.model} → {settings.repo_id} (dry run, nothing is sent)", sizes.items(), ("file", "bytes"))
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
    print(f"the model is at {published.url}")


def _print_notes(bundle: Bundle) -> None:
    for note in bundle.notes:
        print(note)
    sizes: dict[str, list[int]] = {}  # by file, or by folder with its slash
    for name, size in bundle.left_out.items():
        sizes.setdefault("".join(name.partition("/")[:2]), []).append(size)
    parts = [f"{name} ({counted(len(s), 'file')}, {with_unit(sum(s), 'B')})" for name, s in sizes.items()]
    if parts:
        print(one_line(f"left out: {', '.join(parts)}"))
