"""Options as fields of frozen dataclasses, each with help text, choices and range, and their validation.

The command line, TOML files, Python functions, methods and algorithms all define and read their options with this
module. It does not import torch, so that `fedul --help` is quick.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fedul.errors import InputError, unknown_name

C = TypeVar("C")

BOUNDS = (("low", "at least", operator.ge), ("above", "above", operator.gt), ("high", "at most", operator.le))


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
    """Return a dataclass field for an option of a configuration, a method or an algorithm.

    Parameters
    ----------
    default : object
        Default value.
    help : str
        One sentence for ``--help``.
    choices : tuple of str, optional
        Allowed values.
    low, above, high : float, optional
        Range: at least `low`, more than `above`, at most `high`.
    parse : callable, optional
        Converts a value. It raises ValueError with what it expects, which completes the message "expected ...".

    Returns
    -------
    dataclasses.Field
        The field. `validate_fields`, called in ``__post_init__``, converts and checks its value.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     mu: float = option(0.01, "Strength of the penalty.", low=0)
    ...
    ...     def __post_init__(self):
    ...         validate_fields(self)
    >>> build_config(Settings, {"mu": "0.5"})
    Settings(mu=0.5)
    """
    metadata = {"help": help, "choices": choices, "low": low, "above": above, "high": high, "parse": parse}
    return field(default=default, metadata=metadata)


def parse_integers(value: Any) -> tuple[int, ...]:
    """Return the integers of a number, a list, or text such as '10,20,30'.

    >>> parse_integers("10,20"), parse_integers(5)
    ((10, 20), (5,))
    """
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    try:
        numbers = tuple(_to_integer(part) for part in parts)
    except (TypeError, ValueError):
        numbers = ()
    if not numbers:
        raise ValueError("whole numbers, separated by commas")
    return numbers


def parse_names(value: Any) -> tuple[str, ...]:
    """Return the names in a list, or in text such as 'a,b'.

    >>> parse_names("age, sex"), parse_names(["age"])
    (('age', 'sex'), ('age',))
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("names, separated by commas")
    return tuple(part.strip() for part in parts if part.strip())


def parse_classes(value: Any) -> tuple[str, ...]:
    """Return the names of classes: none, or at least two, each once."""
    names = parse_names(value)
    if names and (len(names) < 2 or len(set(names)) < len(names)):
        raise ValueError("at least two classes, each once, separated by commas")
    return names


def parse_batch_size(value: Any) -> int:
    """Return a batch size; 0 stands for 'all'.

    >>> parse_batch_size("all"), parse_batch_size("64")
    (0, 64)
    """
    if value == "all" or (value == 0 and type(value) is int):
        return 0
    try:
        rows = _to_integer(value)
    except (TypeError, ValueError):
        rows = -1
    if rows < 1:
        raise ValueError("a number of rows, at least 1, or 'all'")
    return rows


def parse_name_values(value: Any) -> dict[str, Any]:
    """Return a mapping, or texts NAME=VALUE, as a dict; a VALUE that is a number becomes int or float.

    >>> parse_name_values(["mu=0.1", "weighting=rows"])
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


def build_config(kind: type[C], values: Mapping[str, Any], *, what: str = "option") -> C:
    """Return a configuration from names and values.

    An unknown name raises an InputError that suggests the most similar known name; `what` says in the message what kind
    of name it is.

    >>> from fedul.config import TrainConfig
    >>> build_config(TrainConfig, {"rounds": "3"}).rounds
    3
    >>> build_config(TrainConfig, {"rouns": 3})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedul.errors.InputError: unknown option 'rouns': did you mean 'rounds'? ...
    """
    known = {f.name for f in fields(kind) if "help" in f.metadata}  # type: ignore[arg-type]
    renamed = with_underscores(values)
    for name in renamed:
        if name not in known:
            raise unknown_name(what, name, known)
    return kind(**renamed)


def build_configs(values: Mapping[str, Any], *kinds: type[Any], what: str = "option") -> tuple[Any, ...]:
    """Return several configurations from one mapping; each takes the values of its own fields.

    >>> from fedul.config import BenchmarkDataConfig, TrainConfig
    >>> data, training = build_configs({"rounds": 3, "seed": 1}, BenchmarkDataConfig, TrainConfig)
    >>> data.seed, training.seed, training.rounds
    (1, 1, 3)
    """
    names = [{f.name for f in fields(kind)} for kind in kinds]
    values = with_underscores(values)
    if unknown := [name for name in values if not any(name in known for known in names)]:
        raise unknown_name(what, unknown[0], set().union(*names))
    return tuple(
        build_config(kind, {name: value for name, value in values.items() if name in known})
        for kind, known in zip(kinds, names, strict=True)
    )


def refuse_unknown(what: str, values: Mapping[str, Any], *kinds: type[Any]) -> None:
    """Raise an InputError for the first name that is a field of none of these configurations.

    The message spells names with hyphens, as in files.

    >>> from fedul.config import TrainConfig
    >>> refuse_unknown("setting", {"batch_sise": 8}, TrainConfig)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedul.errors.InputError: unknown setting 'batch-sise': did you mean 'batch-size'? ...
    """
    known = {f.name.replace("_", "-") for kind in kinds for f in fields(kind)}
    for name in values:
        if name.replace("_", "-") not in known:
            raise unknown_name(what, name.replace("_", "-"), known)


def with_underscores(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with names as in Python: 'batch-size' becomes 'batch_size'."""
    renamed = {name.replace("-", "_"): value for name, value in values.items()}
    if len(renamed) < len(values):
        twice = next(name for name in values if "-" in name and name.replace("-", "_") in values)
        raise InputError(f"{twice}: is given twice, with - and with _; give it once.")
    return renamed


def build_component(kind: type[C], values: Mapping[str, Any], owner: str) -> C:
    """Return a method or an algorithm with its options; `owner` names it in error messages."""
    try:
        return build_config(kind, values, what=f"option of {owner}")
    except InputError as problem:
        text = str(problem)
        raise InputError(text if owner in text else f"{owner}: {text}") from None


def validate_fields(config: Any) -> None:
    """Convert every option of a frozen dataclass to its type, in place; InputError if a value is not allowed."""
    hints = get_type_hints(type(config))
    for f in fields(config):
        if "help" not in f.metadata:
            continue
        value = _convert(f, hints[f.name], getattr(config, f.name))
        object.__setattr__(config, f.name, value)


def _convert(f: Field[Any], hint: Any, value: Any) -> Any:
    name, meta = f.name.replace("_", "-"), f.metadata
    if value is None and type(None) in get_args(hint):
        return None
    if parse := meta.get("parse"):
        try:
            return parse(value)
        except ValueError as problem:
            given = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            raise InputError(f"{name}: expected {problem}, got '{given}'.") from None
    is_union = get_origin(hint) in (Union, types.UnionType)
    kind = next(t for t in get_args(hint) if t is not type(None)) if is_union else hint
    value = _convert_type(kind, value, name)
    if meta.get("choices") and value not in meta["choices"]:
        raise InputError(f"{name}: '{value}' is not one of {', '.join(meta['choices'])}; choose one of these.")
    for bound, words, holds in BOUNDS:
        if meta.get(bound) is not None and not holds(value, meta[bound]):
            raise InputError(f"{name}: must be {words} {meta[bound]:g}, got {value:g}; change it, or leave it out.")
    return value


BOOLEANS = {"true": True, "false": False}


def _convert_type(kind: type[Any], value: Any, name: str) -> Any:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if kind not in words:
        return value
    if kind in (bool, str):
        if isinstance(value, kind) and value != "":
            return value
        if kind is bool and value in BOOLEANS:  # options of methods and algorithms are text on the command line
            return BOOLEANS[value]
    elif not isinstance(value, bool):
        try:
            if kind is int:
                return _to_integer(value)
            if math.isfinite(number := float(value)):
                return number
        except (TypeError, ValueError, OverflowError):
            pass
    raise InputError(f"{name}: expected {words[kind]}, got '{value}'.")


def _to_integer(value: Any) -> int:
    """Return an integer; unlike int(), it raises ValueError for 2.5 and true."""
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError
    return number


def to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration as JSON-serializable values."""
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    return {k: list(v) if isinstance(v, tuple) else dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def read_toml(path: str, option: str = "--config") -> dict[str, Any]:
    """Return the options of a TOML file, by name; the option that names the file is for messages."""
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; {option} takes a TOML file.") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"{path}: not a readable TOML file ({problem}); correct it.") from None
