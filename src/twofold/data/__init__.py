"""Files → examples → batches."""
