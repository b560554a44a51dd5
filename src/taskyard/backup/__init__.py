"""Backups of a journal, made with or without a running server, and data directories restored from
them. Knows files and the journal, and nothing of connections or commands.
"""
