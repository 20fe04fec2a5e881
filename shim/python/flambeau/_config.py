"""Settings: attributes of `flambeau.config`, from `FLAMBEAU_*` variables at first, checked when set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flambeau import _native

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes in `text`, a whole number with an optional K, M or G: "512M"."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in ("K", "M", "G") else (text, "")
    if not number.isdecimal():
        raise ValueError(f"{text!r} is not a size; write a whole number of bytes with an optional K, M or G, like 512M")
    return int(number) * _UNITS[unit]


def _home(variable: str, folder: str) -> str:
    base = os.environ.get(variable) or os.path.expanduser(f"~/{folder}")
    return str(Path(base) / "flambeau")


def _folder(text: str) -> str:
    return str(Path(text).expanduser().absolute())


def _folders(text: str) -> list[str]:
    return [folder for folder in text.split(":") if folder]


def _packaged_libraries() -> list[str]:
    """The folders in which packages beside torch bring libraries that code generators need, like NVRTC. Torch is not
    imported for it."""
    try:
        torch = find_spec("torch")
    except ValueError:  # something that has torch's name and no file
        return []
    if torch is None or torch.origin is None:
        return []
    return sorted(str(folder) for folder in Path(torch.origin).parents[1].glob("nvidia/*/lib"))


def _positive(most: float) -> Callable[[Any], bool]:
    """Numbers above zero, up to `most`; not a NaN."""
    return lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= most


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST


#: The largest limit, and the most seconds (31 years).
_MOST = 10**9
_SIZE = _positive(1 << 62)
_SECONDS = _positive(_MOST)


def _text(value: Any) -> bool:
    return isinstance(value, str)


#: name: (default, check, what it must be, parser of the variable FLAMBEAU_NAME)
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], bool], str, Callable[[str], Any]]] = {
    "accumulated_recompile_limit": (lambda: 256, _count, "a positive int, at most 10**9", int),
    "backend": (
        lambda: None,
        lambda v: v is None or _text(v),
        "the name of a back end, or None for the user's default (`flambeau backend use`)",
        str,
    ),
    "cache_dir": (lambda: _home("XDG_CACHE_HOME", ".cache"), _text, "a folder", _folder),
    "cache_size": (lambda: 4 << 30, _SIZE, "a positive number of bytes below 2**62", parse_size),
    "data_dir": (lambda: _home("XDG_DATA_HOME", ".local/share"), _text, "a folder", _folder),
    "idle_timeout": (lambda: 3 * 3600.0, _SECONDS, "a positive number of seconds, at most 10**9", float),
    "library_path": (_packaged_libraries, lambda v: isinstance(v, list), "a list of folders", _folders),
    "logs": (lambda: "", _text, "topics separated by commas", str),
    "native_training": (
        lambda: True,
        lambda v: isinstance(v, bool),
        "a bool",
        lambda t: t != "0",
    ),
    "nested_graph_breaks": (
        lambda: True,
        lambda v: isinstance(v, bool),
        "a bool",
        lambda t: t != "0",
    ),
    "plugin_path": (list, lambda v: isinstance(v, list), "a list of folders", _folders),
    "recompile_limit": (lambda: 8, _count, "a positive int, at most 10**9", int),
    "record_dir": (lambda: None, lambda v: v is None or _text(v), "a folder or None", str),
    "skip_nnmodule_hook_guards": (
        lambda: False,
        lambda v: isinstance(v, bool),
        "a bool; hooks are always honoured",
        bool,
    ),
    "timeout": (lambda: 60.0, _SECONDS, "a positive number of seconds, at most 10**9", float),
}
_NATIVE = (
    "accumulated_recompile_limit",
    "cache_dir",
    "cache_size",
    "data_dir",
    "idle_timeout",
    "library_path",
    "logs",
    "native_training",
    "nested_graph_breaks",
    "plugin_path",
    "recompile_limit",
    "record_dir",
    "timeout",
)


def _checked(name: str, place: str, value: Any) -> Any:
    """The value of a setting, whichever way it came: from a variable or by assignment to `place`."""
    _, check, kind, _ = _SETTINGS[name]
    if not check(value):
        raise ValueError(f"{place} must be {kind}, not {value!r}")
    return value


def _parse(name: str, variable: str, text: str) -> Any:
    _, _, kind, parse = _SETTINGS[name]
    try:
        value = parse(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{variable} must be {kind}, not {text!r}: {error}") from None
    return _checked(name, variable, value)


class Config:
    """The settings. Assign to change one; `patch` changes some for a `with` block or a decorated function."""

    __slots__ = ("_values",)
    _values: dict[str, Any]

    def __init__(self) -> None:
        values: dict[str, Any] = {}
        for name, (default, _, _, _) in _SETTINGS.items():
            variable = f"FLAMBEAU_{name.upper()}"
            text = os.environ.get(variable)
            values[name] = _parse(name, variable, text) if text else default()
        object.__setattr__(self, "_values", values)
        self._apply()

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"flambeau.config has no {name!r}; it has {', '.join(_SETTINGS)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SETTINGS:
            raise AttributeError(f"flambeau.config has no {name!r}; it has {', '.join(_SETTINGS)}")
        self._values[name] = _checked(name, f"flambeau.config.{name}", value)
        self._apply()

    def __dir__(self) -> list[str]:
        return [*_SETTINGS, "patch"]

    def _apply(self) -> None:
        _native.configure(**{name: self._values[name] for name in _NATIVE})

    @contextmanager
    def patch(self, **changes: Any) -> Iterator[None]:
        """Sets these for the length of a `with` block (or of each call of a function it decorates)."""
        old = {name: getattr(self, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in old.items():
                setattr(self, name, value)


config = Config()
