"""Settings as fields of frozen dataclasses: each carries its help, its choices and its range, and one check is for all.

The command line, the TOML reader, `fedul.train`, methods and algorithms are all checked here. Nothing here imports
torch, so that `fedul --help` is quick.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fedul.errors import InputError, unknown

C = TypeVar("C")


def option(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    parse: Callable[[Any], Any] | None = None,
) -> Any:
    """A configuration field: its default, what it means, and what it may be."""
    metadata = {"help": help, "choices": choices, "low": low, "above": above, "high": high, "parse": parse}
    return field(default=default, metadata=metadata)


def whole_numbers(value: Any) -> tuple[int, ...]:
    """'10' or '10,20,30' or a list, as whole numbers.

    >>> whole_numbers("10,20"), whole_numbers(5)
    ((10, 20), (5,))
    """
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    try:
        numbers = tuple(_whole(part) for part in parts)
    except (TypeError, ValueError):
        numbers = ()
    if not numbers:
        raise ValueError("whole numbers, separated by commas")
    return numbers


def names(value: Any) -> tuple[str, ...]:
    """'a,b' or a list, as names.

    >>> names("age, sex"), names(["age"])
    (('age', 'sex'), ('age',))
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("names, separated by commas")
    return tuple(part.strip() for part in parts if part.strip())


def batch_rows(value: Any) -> int:
    """A batch size; 'all' (the paper's infinity) is 0.

    >>> batch_rows("all"), batch_rows("64")
    (0, 64)
    """
    if value == "all" or (value == 0 and type(value) is int):
        return 0
    try:
        rows = _whole(value)
    except (TypeError, ValueError):
        rows = -1
    if rows < 1:
        raise ValueError("a number of rows, at least 1, or 'all'")
    return rows


def name_values(value: Any) -> dict[str, Any]:
    """['mu=0.1', 'weighting=rows'] or a mapping, as a mapping; numbers become numbers.

    >>> name_values(["mu=0.1", "weighting=rows"])
    {'mu': 0.1, 'weighting': 'rows'}
    """
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str | list | tuple):
        raise ValueError("NAME=VALUE")
    pairs: dict[str, Any] = {}
    for text in [value] if isinstance(value, str) else value:
        name, equals, setting = str(text).partition("=")
        if not equals or not name:
            raise ValueError("NAME=VALUE")
        if name.strip() in pairs:
            raise ValueError(f"one value for {name.strip()}")
        try:
            pairs[name.strip()] = float(setting) if "." in setting or "e" in setting.lower() else int(setting)
        except ValueError:
            pairs[name.strip()] = setting.strip()
    return pairs


def make(kind: type[C], values: Mapping[str, Any], *, what: str = "option") -> C:
    """A configuration from names and values; unknown names are refused with the nearest known one.

    >>> from fedul.config import TrainConfig
    >>> make(TrainConfig, {"rounds": "3"}).rounds
    3
    >>> make(TrainConfig, {"rouns": 3})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedul.errors.InputError: unknown option 'rouns': did you mean 'rounds'? ...
    """
    known = {f.name for f in fields(kind) if "help" in f.metadata}  # type: ignore[arg-type]
    plain = underscored(values)
    for name in plain:
        if name not in known:
            raise unknown(what, name, known)
    return kind(**plain)


def refuse_unknown(what: str, values: Mapping[str, Any], *kinds: type[Any]) -> None:
    """Refuses names that none of these configurations has; they are spelled with - here, as files have them.

    >>> from fedul.config import TrainConfig
    >>> refuse_unknown("setting", {"batch_sise": 8}, TrainConfig)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedul.errors.InputError: unknown setting 'batch-sise': did you mean 'batch-size'? ...
    """
    known = {f.name.replace("_", "-") for kind in kinds for f in fields(kind)}
    for name in values:
        if name.replace("_", "-") not in known:
            raise unknown(what, name.replace("_", "-"), known)


def underscored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same by names as Python has them: 'batch-size' is 'batch_size'."""
    plain = {name.replace("-", "_"): value for name, value in values.items()}
    if len(plain) < len(values):
        twice = next(name for name in values if "-" in name and name.replace("-", "_") in values)
        raise InputError(f"{twice}: is given twice, with - and with _; give it once.")
    return plain


def make_part(kind: type[C], values: Mapping[str, Any], owner: str) -> C:
    """The same for the settings of a method or an algorithm; what is refused is told with its owner."""
    try:
        return make(kind, values, what=f"option of {owner}")
    except InputError as problem:
        text = str(problem)
        raise InputError(text if owner in text else f"{owner}: {text}") from None


def check(config: Any) -> None:
    """Brings every field of a frozen configuration to its type, and refuses what is out of range."""
    hints = get_type_hints(type(config))
    for f in fields(config):
        if "help" not in f.metadata:
            continue
        value = _coerced(f, hints[f.name], getattr(config, f.name))
        object.__setattr__(config, f.name, value)


def _coerced(f: Field[Any], hint: Any, value: Any) -> Any:
    name, meta = f.name.replace("_", "-"), f.metadata
    if value is None and type(None) in get_args(hint):
        return None
    if parse := meta.get("parse"):
        try:
            return parse(value)
        except ValueError as problem:
            given = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            raise InputError(f"{name}: expected {problem}, got '{given}'.") from None
    kind = next(t for t in get_args(hint) if t is not type(None)) if _is_optional(hint) else hint
    value = _as(kind, value, name)
    if meta.get("choices") and value not in meta["choices"]:
        raise InputError(f"{name}: '{value}' is not one of {', '.join(meta['choices'])}.")
    low, above, high = meta.get("low"), meta.get("above"), meta.get("high")
    if low is not None and not value >= low:
        raise InputError(f"{name}: must be at least {low:g}, got {value:g}.")
    if above is not None and not value > above:
        raise InputError(f"{name}: must be above {above:g}, got {value:g}.")
    if high is not None and not value <= high:
        raise InputError(f"{name}: must be at most {high:g}, got {value:g}.")
    return value


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _as(kind: type[Any], value: Any, name: str) -> Any:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if kind not in words:
        return value
    if kind is bool:
        if isinstance(value, bool):
            return value
    elif kind is str:
        if isinstance(value, str) and value:
            return value
    elif not isinstance(value, bool):
        try:
            if kind is int:
                return _whole(value)
            if math.isfinite(number := float(value)):
                return number
        except (TypeError, ValueError, OverflowError):
            pass
    raise InputError(f"{name}: expected {words[kind]}, got '{value}'.")


def _whole(value: Any) -> int:
    """A whole number, exactly as given: int() alone would cut 2.5 to 2 and take true for 1."""
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError
    return number


def plain(config: Any) -> dict[str, Any]:
    """The configuration as JSON-able values."""
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    return {k: list(v) if isinstance(v, tuple) else dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def read_toml(path: str) -> dict[str, Any]:
    """The options of a TOML file, by name."""
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; --config takes a TOML file.") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"{path}: not a readable TOML file ({problem}).") from None
