"""Files → rows → caches → batches."""
