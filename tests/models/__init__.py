"""Named models: pulling, converting, and loading them."""
