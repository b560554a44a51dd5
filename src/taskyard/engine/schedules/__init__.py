"""Schedules: when they push a job, and how they are kept."""
