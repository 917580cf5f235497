"""Training: the loop, optimizers, freezing, gradient caching and checkpoints."""
