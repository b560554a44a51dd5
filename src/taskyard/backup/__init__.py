"""Backups of a journal, made beside a running server or without one, and data directories made of
them. Knows files and the journal, and nothing of connections or commands."""
