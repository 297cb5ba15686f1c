"""The engines' objects ↔ ours. Each adapter imports its engine only inside functions."""
