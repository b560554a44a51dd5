"""Configuration, listeners, start and stop of the server process."""
