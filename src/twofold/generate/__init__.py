"""Greedy search, beam search and sampling, shared by all text decoders."""
