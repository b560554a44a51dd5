"""Measurements of the data pipeline."""
