"""The lake: what the journal's records tell, as Delta tables that every reader can use."""
