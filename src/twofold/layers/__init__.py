"""Attention, masks, positions, norms, recurrences and the blocks made of them."""
