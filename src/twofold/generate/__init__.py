"""Greedy, beam and sampled writing, once for all text decoders."""
