"""Differential fuzzing: random Python programs full of graph breaks, eager against compiled. See `__main__.py`."""
