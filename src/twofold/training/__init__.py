"""The trainer: one loop for every pair."""
