"""JSON files from outside, read strictly: bounded size, no duplicate keys, numbers as canonical decimal strings."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from cuzk_engine.curves import Curve, Fq2Value, G1Point, G2Point, curve_by_name
from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats.guess import HEAD_BYTES, guess
from cuzk_engine.formats.source import open_regular, read_at

# The primes have at most 381 bits, so no legitimate number is longer. It also keeps int() from quadratic work.
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]{0,199})", re.ASCII)

_MAX_DEPTH: Final = 32  # real files have up to 4
# A JSON string; one that never ends goes to the end of the data, so that the search stays linear.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


class _RefusedError(Exception):
    """Raised by the decoder's hooks."""


def load_json(path: Path | str, noun: str, max_bytes: int) -> Any:
    """The decoded content of a JSON file; `noun` says what was expected ("a proof").

    Raises FormatError when the file is larger than `max_bytes`, is not UTF-8, is not JSON, or holds an object with one
    key twice.
    """
    with open_regular(path) as (descriptor, status):
        if status.st_size > max_bytes:
            raise FormatError(path, f"has {status.st_size:,} bytes, expected {noun} of at most {max_bytes:,}")
        data = bytes(read_at(descriptor, status.st_size))
    if not data:
        raise IncompleteFileError(path, noun, 2, 0)
    if _depth_exceeds(data, _MAX_DEPTH):
        raise FormatError(path, f"is nested too deeply to be {noun}")
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except _RefusedError as error:
        raise FormatError(path, f"{error}; expected {noun}") from error
    except ValueError as error:
        raise FormatError(path, _not_json(data, noun, error)) from error


class Fields:
    """Takes typed values out of decoded JSON; every refusal names file and item."""

    def __init__(self, path: Path | str, noun: str, document: Any) -> None:
        self.path = str(path)
        self.noun = noun
        if not isinstance(document, dict):
            self.fail(f"holds {_type_name(document)}, expected {noun}, which is a JSON object")
        self._document: dict[str, Any] = document

    def fail(self, message: str) -> NoReturn:
        raise FormatError(self.path, message)

    def has(self, key: str) -> bool:
        return key in self._document

    def get(self, key: str) -> Any:
        if key not in self._document:
            self.fail(f'"{key}" is missing from {self.noun}')
        return self._document[key]

    def protocol(self) -> None:
        """ "protocol" must be Groth16."""
        found = self.get("protocol")
        if found != "groth16":
            self.fail(f'protocol is {shown(found)}, expected "groth16", the only one supported')

    def curve(self) -> Curve:
        found = self.get("curve")
        curve = curve_by_name(found) if isinstance(found, str) else None
        if curve is None:
            self.fail(f'curve is {shown(found)}, expected "bn128" or "bls12381"')
        return curve

    def count(self, key: str) -> int:
        found = self.get(key)
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            self.fail(f'"{key}" is {shown(found)}, expected a count')
        return found

    def g1(self, curve: Curve, key: str) -> G1Point:
        return self.g1_value(curve, self.get(key), key)

    def g1_value(self, curve: Curve, value: Any, item: str) -> G1Point:
        x, y, z = (
            self._element(curve, part, f"{item}[{index}]") for index, part in enumerate(self._list(value, 3, item))
        )
        if (x, y, z) == (0, 1, 0):  # how snarkjs writes infinity
            return 0, 0
        if z != 1:
            self.fail(f'{item}[2] is not "1": expected an affine point')
        if (x, y) == (0, 0):
            self.fail(f"{item} is (0, 0), which is not a point")
        return x, y

    def g2(self, curve: Curve, key: str) -> G2Point:
        parts = self._list(self.get(key), 3, key)
        x, y, z = (self._element2(curve, part, f"{key}[{index}]") for index, part in enumerate(parts))
        if (x, y, z) == ((0, 0), (1, 0), (0, 0)):
            return (0, 0), (0, 0)
        if z != (1, 0):
            self.fail(f'{key}[2] is not ["1", "0"]: expected an affine point')
        if (x, y) == ((0, 0), (0, 0)):
            self.fail(f"{key} is zero, which is not a point")
        return x, y

    def _element2(self, curve: Curve, value: Any, item: str) -> Fq2Value:
        c0, c1 = self._list(value, 2, item)
        return self._element(curve, c0, f"{item}[0]"), self._element(curve, c1, f"{item}[1]")

    def _element(self, curve: Curve, value: Any, item: str) -> int:
        return field_element(self.path, value, item, curve.q, f"{curve.title}'s base field")

    def _list(self, value: Any, length: int, item: str) -> Sequence[Any]:
        if not isinstance(value, list):
            self.fail(f"{item} is {_type_name(value)}, expected a list of {length}")
        if len(value) != length:
            self.fail(f"{item} has {len(value):,} entries, expected {length}")
        return value


def field_element(path: Path | str, value: Any, item: str, prime: int | None, field: str) -> int:
    """A decimal string below `prime` as a number; signs, blanks, leading zeros and other notations are refused."""
    if not isinstance(value, str):
        raise FormatError(path, f"{item} is {_type_name(value)}, expected a number as a decimal string")
    if _DECIMAL.fullmatch(value) is None:
        raise FormatError(path, f"{item} is {shown(value)}, expected a number as a decimal string")
    number = int(value)
    if prime is not None and number >= prime:
        raise FormatError(path, f"{item} is not below the prime of {field}: found {shown(value)}")
    return number


def shown(value: Any) -> str:
    """A JSON value for a message: on one line, printable, at most about 60 characters."""
    if isinstance(value, (dict, list)):
        return _type_name(value)
    text = json.dumps(value)  # escapes everything outside ASCII
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text):,} characters)"


def _depth_exceeds(data: bytes, limit: int) -> bool:
    """Whether brackets outside strings nest deeper than `limit`.

    The standard decoder recurses on the C stack up to the interpreter's recursion limit, which libraries raise: then a
    deep file ends the process.
    """
    depth = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > limit:
            return True
    return False


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RefusedError(f"has the key {shown(key)} twice")
            seen.add(key)
    return result


def _no_constant(name: str) -> NoReturn:
    raise _RefusedError(f"holds {name}, which is not JSON")


def _not_json(data: bytes, noun: str, error: ValueError) -> str:
    seems = guess(data[:HEAD_BYTES])
    if seems is not None and seems != "JSON text":
        return f"this is {seems}, expected {noun}"
    if isinstance(error, json.JSONDecodeError):
        if not error.doc[error.pos :].strip():
            return f"incomplete file: the JSON ends at line {error.lineno} before {noun} is complete"
        return f"is not JSON: {error.msg} at line {error.lineno} column {error.colno}; expected {noun}"
    return f"is not JSON text; expected {noun}"
