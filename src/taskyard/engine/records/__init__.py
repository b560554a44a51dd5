"""What happened: records, how they are written and read, and what they do to the state."""
