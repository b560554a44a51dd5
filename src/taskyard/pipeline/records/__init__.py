"""Records of the journal as columns of Arrow."""
