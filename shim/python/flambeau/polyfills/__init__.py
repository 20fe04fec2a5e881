"""Python functions that behave as functions and types of C do, for traces to go through.

A trace that meets a callable of C at an import path of [`TABLE`] calls the function of the table instead, and traces it
like the user's code. A call that it does not bind its arguments to, or that it refuses, is a graph break, as is one
within which something cannot be traced. Compiled programs never run these functions: what a trace leaves to Python is
the original.
"""

from __future__ import annotations

from flambeau.polyfills import autograd as autograd
from flambeau.polyfills import bisecting as bisecting
from flambeau.polyfills import checkpointing as checkpointing
from flambeau.polyfills import deques as deques
from flambeau.polyfills import foreach as foreach
from flambeau.polyfills import heaps as heaps
from flambeau.polyfills import helpers as helpers
from flambeau.polyfills import iterators as iterators
from flambeau.polyfills._table import TABLE as TABLE
