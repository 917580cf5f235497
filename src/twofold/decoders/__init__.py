"""Parts that write: one file a kind."""
