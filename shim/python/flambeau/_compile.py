"""`flambeau.compile`: arguments, back-end names, and compiled views of modules."""

from __future__ import annotations

import builtins
import functools
import types
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from flambeau import _native
from flambeau._config import config

if TYPE_CHECKING:
    import torch

F = TypeVar("F", bound=Callable[..., Any])
Backend = str | Callable[..., Any] | None

NATIVE = ("cpu",)
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""What `torch.compile` takes as `mode`."""
RECORDED = ("reduce-overhead", "max-autotune")
"""Modes in which plans are recorded as CUDA graphs."""


@dataclass(frozen=True)
class Options:
    """What one call of `compile` asked for."""

    fullgraph: bool
    dynamic: bool | None
    backend: Backend
    mode: str | None = None

    def start(self, fn: Callable[..., Any]) -> _native.Compiled:
        """The native callable for the Python function `fn`, with its name, documentation and signature."""
        backend = config.backend if self.backend is None else self.backend
        # Without a name it is the user's default of each call's moment.
        name, fx = (None, None) if backend is None else resolve(backend)
        compiled = _native.Compiled(fn, name, fx, self.fullgraph, self.dynamic, self.mode in RECORDED)
        functools.update_wrapper(compiled, fn)
        return compiled


def resolve(backend: str | Callable[..., Any]) -> tuple[str, Callable[..., Any] | None]:
    """The back end's name, and for one that takes a `torch.fx.GraphModule` the callable."""
    if callable(backend):
        return f"fx:{getattr(backend, '__module__', '')}.{getattr(backend, '__qualname__', repr(backend))}", backend
    if backend == "eager" or backend in NATIVE:
        return backend, None
    if backend in _native.plugins():
        # Whether it works is found out when it is used.
        return backend, None
    from torch._dynamo.backends.registry import lookup_backend

    try:
        return f"fx:{backend}", lookup_backend(backend)
    except Exception as error:
        names = ", ".join(sorted({*NATIVE, *_native.plugins(), "eager"}))
        raise ValueError(f"no back end is called {backend!r}; there are {names}, and torch's own: {error}") from error


@overload
def compile(
    model: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: Backend = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    disable: bool = ...,
) -> F: ...
@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: Backend = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    disable: bool = ...,
) -> Callable[[F], F]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Backend = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """A compiled version of a function or module, as `torch.compile`; also a decorator, with or without arguments.

    `fullgraph`: raise where the call cannot be one graph. `dynamic`: make sizes symbolic (True), or fixed (False),
    or as `mark_dynamic` says (None). `backend`: the name of a plug-in ("cpu", ...), "eager", the name of a torch back
    end, or a callable that takes `(gm: torch.fx.GraphModule, example_inputs)`; without one `config.backend`, else the
    user's default, which calls follow when it changes. `mode`: any of `torch.compile`'s; on CUDA "reduce-overhead" and
    "max-autotune" record what a call launches as a CUDA graph, nothing else differs. `disable`: give `model` back as it
    is.

    The argument itself is never altered. A module's compiled view shares its attributes, parameters and hooks.
    """
    check(mode, options)
    if dynamic not in (None, True, False):
        raise TypeError(f"dynamic must be True, False or None, not {dynamic!r}")
    chosen = Options(bool(fullgraph), dynamic, backend, mode)
    if model is None:
        return lambda target: target if disable else start(target, chosen)
    return model if disable else start(model, chosen)


def check(mode: str | None, options: dict[str, Any] | None) -> None:
    """Raises for what `compile` does not take."""
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode={mode!r} is none of {', '.join(MODES)}")
    if options:
        raise NotImplementedError("options= is not available yet; set what you need on flambeau.config")


@functools.cache
def keep_annotations() -> None:
    """Has `typing` keep what `record_function` evaluates in an annotation: a trace finds it there."""
    import torch

    torch.autograd.profiler.record_function("")


def start(target: Any, options: Options) -> Any:
    """The compiled form of `target`, by what it is."""
    # Torch takes seconds to import; the command `flambeau` is quick without it.
    import torch

    keep_annotations()
    if isinstance(target, torch.nn.Module):
        return view(target, options)
    if isinstance(target, types.FunctionType):
        return options.start(target)
    if isinstance(target, types.MethodType) and isinstance(target.__func__, types.FunctionType):
        return types.MethodType(options.start(target.__func__), target.__self__)
    if isinstance(target, type) or not callable(target):
        raise TypeError(f"flambeau.compile takes a function, a module or a callable object, not {target!r}")
    call = _type_call(type(target))
    if isinstance(call, types.FunctionType):
        return types.MethodType(options.start(call), target)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    return options.start(forward)


def _type_call(cls: Any) -> Any:
    """`cls.__call__` as found along the MRO, without the metaclass's."""
    return next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)


class View:
    """Mixed into the class of a compiled view: calls go to compiled code, everything else to the module's own state."""

    __slots__ = ("_flambeau_call", "_flambeau_compiled", "_flambeau_module", "_flambeau_options")
    _flambeau_call: Callable[..., Any]
    _flambeau_compiled: _native.Compiled
    _flambeau_module: torch.nn.Module
    _flambeau_options: Options


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """What `_native.call_natively` does as well: traces of callers follow this."""
    module = self._flambeau_module
    if type(module).__call__ is not self._flambeau_call:
        _attach(self, module, self._flambeau_options)
    return self._flambeau_compiled(module, *args, **kwargs)


def _attach(view: Any, module: torch.nn.Module, options: Options) -> None:
    call: Any = type(module).__call__
    object.__setattr__(view, "_flambeau_call", call)
    object.__setattr__(view, "_flambeau_compiled", options.start(call))


def _copy(self: Any) -> Any:
    import copy

    return view(copy.copy(self._flambeau_module), self._flambeau_options)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    import copy

    return view(copy.deepcopy(self._flambeau_module, memo), self._flambeau_options)


def _replicate(self: Any) -> Any:
    """For `torch.nn.DataParallel`. Torch's own would make an instance of the view's class that has no module."""
    return view(self._flambeau_module._replicate_for_data_parallel(), self._flambeau_options)


def _reduce(self: Any, _protocol: Any) -> Any:
    return _restore, (self._flambeau_module, asdict(self._flambeau_options))


def _restore(module: torch.nn.Module, options: dict[str, Any]) -> Any:
    return view(module, Options(**options))


_VIEW_CLASSES: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


def _view_class(cls: type) -> type:
    """The view class of `cls`, made once while any view of it lives."""
    known = _VIEW_CLASSES.get(cls)
    made = known() if known else None
    if made is None:
        made = _make_view_class(cls)
        _VIEW_CLASSES[cls] = weakref.ref(made)
    return made


def _make_view_class(cls: type) -> type:
    body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    copies = {"__copy__": _copy, "__deepcopy__": _deepcopy, "__reduce_ex__": _reduce}
    calls = {"__call__": _call, "_replicate_for_data_parallel": _replicate}
    made = builtins.type(cls.__name__, (cls,), {"__slots__": View.__slots__, **body, **copies, **calls})
    _native.call_natively(made, _call)
    return made


def view(module: torch.nn.Module, options: Options) -> Any:
    """A module of the same class that shares `module.__dict__` and whose calls are compiled."""
    if hasattr(type(module), "_flambeau_compiled"):
        module = module._flambeau_module  # type: ignore[assignment]
    compiled: Any = object.__new__(_view_class(type(module)))
    object.__setattr__(compiled, "__dict__", module.__dict__)
    object.__setattr__(compiled, "_flambeau_module", module)
    object.__setattr__(compiled, "_flambeau_options", options)
    _attach(compiled, module, options)
    return compiled
