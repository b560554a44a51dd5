"""Workq: lines of text over TCP."""
