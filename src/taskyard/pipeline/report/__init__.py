"""The report of a lake."""
