"""What `mybert push` can be told."""

import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from mybert.common.errors import UserError
from mybert.common.settings import setting

_PULL_REQUEST = re.compile(r"refs/pr/\d+")
_REF = re.compile(r"(?!.*(\.\.|//|@\{))[\w][\w./-]*(?<![./])")  # git-check-ref-format, without what needs quoting
_SIZE = re.compile(r"[1-9]\d{0,8}(KB|MB|GB)", re.IGNORECASE)


@dataclass
class PushSettings:
    """Settings of `push`.

    Raises:
        UserError: a value is out of its range, or two contradict each other.
    """

    checkpoint: str = setting("", "folder of the finished model", positional=True)
    repo_id: str = setting("", "owner/name of the repository; made if it is not there (required)")
    public: bool = setting(False, "everybody may read a repository that is made now; without it, only you")
    revision: str = setting("main", "branch to commit to, made from main if it is not there; or refs/pr/N")
    tag: str | None = setting(
        None,
        "name that the card pins for loading; when nothing is said, one made of the content, such as mybert-1f0c…",
    )
    create_pr: bool = setting(False, "open a pull request on main in place of a commit")
    overwrite: bool = setting(False, "replace whatever the repository holds, even if it is not a MyBERT")
    license: str | None = setting(None, "licence of the weights as the Hub names it, such as apache-2.0 or cc-by-4.0")
    language: list[str] | None = setting(None, "ISO 639 codes of the languages of the text, such as en de")
    exclude: list[str] | None = setting(None, "files and folders to leave out, as patterns such as 'checkpoint-*'")
    max_file_size: str = setting("5GB", "weights are cut into files of this size; any other file above it is refused")
    verify: bool = setting(
        True, "load the upload as a stranger would, before and after, which runs its code; the card says if not"
    )
    dry_run: bool = setting(False, "print the files, their sizes and the card, and send nothing")

    def __post_init__(self):
        if not self.checkpoint or not self.repo_id:
            raise UserError("expected a checkpoint and a repository: mybert push CHECKPOINT --repo-id owner/name")
        if not Path(self.checkpoint).is_dir():
            raise UserError(f"checkpoint {self.checkpoint} is not a folder; name that of a finished model")
        try:
            validate_repo_id(self.repo_id)
        except HFValidationError as error:
            raise UserError(f"--repo-id {self.repo_id}: {error}") from error
        if self.repo_id.count("/") != 1:
            raise UserError(f"--repo-id {self.repo_id}: expected owner/name, such as alice/bert-of-my-books")
        for name in ("revision", "tag"):
            value = getattr(self, name)
            if value is not None and not _REF.fullmatch(value):
                raise UserError(f"--{name} {value!r}: expected letters, digits, and . _ - / between them")
        if self.tag and self.tag.startswith("refs/"):
            raise UserError(f"--tag {self.tag}: name it without refs/")
        if self.create_pr and (self.revision != "main" or self.tag):
            raise UserError("--create-pr opens a pull request on main; it excludes --revision and --tag")
        if self.pull_request and self.tag:
            raise UserError(f"--tag {self.tag}: {self.revision} is a pull request; set the tag when it is merged")
        if not _SIZE.fullmatch(self.max_file_size):
            raise UserError(f"--max-file-size {self.max_file_size}: expected a number and KB, MB or GB, such as 5GB")
        for code in self.language or ():
            if not re.fullmatch(r"[a-z]{2,3}|code|multilingual", code):
                raise UserError(f"--language {code}: expected ISO 639 codes such as en, or code, or multilingual")
        if self.license is not None and not re.fullmatch(r"[a-z0-9.+-]+", self.license):
            raise UserError(f"--license {self.license}: expected an identifier of the Hub such as apache-2.0 or mit")

    @property
    def pull_request(self) -> bool:
        """Whether `revision` is that of a pull request that is already open."""
        return bool(_PULL_REQUEST.fullmatch(self.revision))
