"""The dashboard: its files, and how they are served. What it shows comes from the JSON API."""
