"""Perturbation: one fact of a program's world is changed at a time, and every call must still do what eager does."""
