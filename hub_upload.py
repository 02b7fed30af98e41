"""`python hub_upload.py CHECKPOINT --repo-id owner/name`: publishes a checkpoint, as `mybert push` does."""

import sys

from mybert.cli import main

if __name__ == "__main__":
    sys.exit(main(["push", *sys.argv[1:]]))
