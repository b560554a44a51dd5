"""Lets Spark find the format `taskyard.lake`: it imports all modules with such names."""

import contextlib

# A failing import would keep Spark from finding any format: this one needs taskyard[spark].
with contextlib.suppress(ImportError):
    from taskyard.pipeline.lake.format import LakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
