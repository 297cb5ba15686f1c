"""Saved weights: what is in them, whether they fit the sizes of today, and rewriting them where that is safe."""
