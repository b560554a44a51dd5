"""`python -m taskyard` is the `taskyard` command."""

import sys

from taskyard.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
