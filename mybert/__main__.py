"""`python -m mybert`: the `mybert` command."""

import sys

from mybert.cli import main

sys.exit(main())
