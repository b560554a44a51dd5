"""The settings of a server: their names, kinds and defaults."""
