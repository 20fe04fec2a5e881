"""The programs, one file a theme."""
