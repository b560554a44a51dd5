"""What takes minutes: `make release-tests` runs it, `make test` does not."""

import os

collect_ignore_glob = [] if os.environ.get("TEST_RELEASE") else ["test_*.py"]
