"""Taskyard: one durable job queue that speaks several queue protocols."""

__version__ = "0.1.0"
