"""Parts that read: one file a kind."""
