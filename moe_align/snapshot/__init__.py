"""Saved weights: what is in them, whether they fit the sizes of today, and rewriting where that is safe."""
