"""Neural network layers: attention, masks, positions, norms, recurrent layers and the blocks made of them."""
