"""What decides: one module for each kind of operation."""
