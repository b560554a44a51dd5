"""`python -m benchmarks`: Taskyard and other queue servers side by side."""

import sys

from benchmarks.side_by_side.command import main

sys.exit(main())
