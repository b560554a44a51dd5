"""A minute in the life of a server: five protocols at once, tables, a report. See `make demo`."""
