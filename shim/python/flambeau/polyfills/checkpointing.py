"""Activation checkpointing: `torch.utils.checkpoint.checkpoint` is the call of its function. What the graph computes
meanwhile is computed again for its derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import checkpoint as original

from flambeau.polyfills._table import computed_again, instead_of, refuse


@instead_of("torch.utils.checkpoint.checkpoint")
def checkpoint(
    function: Any = None,
    *args: Any,
    use_reentrant: Any = None,
    preserve_rng_state: Any = True,
    context_fn: Any = original.noop_context_fn,
    determinism_check: Any = "default",
    debug: Any = False,
    early_stop: Any = True,
    respect_saved_tensors_hooks: Any = None,
    **kwargs: Any,
) -> Any:
    is_usual = function is not None and use_reentrant is False and type(preserve_rng_state) is bool
    is_usual = is_usual and context_fn is original.noop_context_fn and determinism_check == "default"
    is_usual = is_usual and debug is False and early_stop is True and respect_saved_tensors_hooks is None
    if not is_usual:
        refuse()
    # Context managers of torch's set these, under all versions that have them.
    if getattr(original, "_checkpoint_debug_enabled", None) is not None:
        refuse()
    if getattr(original, "_enable_checkpoint_early_stop", None) not in (None, True):
        refuse()
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    return computed_again(lambda: function(*args, **kwargs), preserve_rng_state)
