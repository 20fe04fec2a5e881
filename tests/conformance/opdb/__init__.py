"""Torch's own operators with its samples of their arguments, eagerly and compiled."""
