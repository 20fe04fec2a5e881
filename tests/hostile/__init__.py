"""Hostile bytes, damaged caches and kills against a real daemon and a real client. See `__main__.py`."""
