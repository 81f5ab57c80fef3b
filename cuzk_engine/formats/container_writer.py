"""Writes the iden3 container (see ``container``) from its start to its end, section by section, to a stream."""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.formats.atomic import Sink

Writable: TypeAlias = bytes | memoryview | npt.NDArray[Any]

_HEADER: Final = struct.Struct("<4sII")
_SECTION: Final = struct.Struct("<IQ")


class ContainerWriter:
    """Sizes are told before the data, so that nothing needs to be held back; a section that has another size than was
    told is a ValueError."""

    def __init__(self, stream: Sink, magic: bytes, version: int, sections: int) -> None:
        self._stream = stream
        self._sections = sections  # still to come
        self._missing = 0  # bytes of the section that is being written
        self._stream.write(_HEADER.pack(magic, version, sections))

    def section(self, section_type: int, size: int, data: Writable = b"") -> None:
        """Starts a section of ``size`` bytes, with ``data`` as its first ones."""
        self._check_complete()
        self._sections -= 1
        self._missing = size
        self._stream.write(_SECTION.pack(section_type, size))
        self.write(data)

    def whole_section(self, section_type: int, data: bytes) -> None:
        self.section(section_type, len(data), data)

    def write(self, data: Writable) -> None:
        """More bytes of the section."""
        view = data.data if isinstance(data, np.ndarray) else memoryview(data)
        self._missing -= view.nbytes
        if self._missing < 0:
            raise ValueError(f"{-self._missing} bytes too many for the section")
        if view.nbytes:  # a view without elements cannot be cast
            self._stream.write(view.cast("B"))

    def finish(self) -> None:
        self._check_complete()
        if self._sections:
            raise ValueError(f"{self._sections} sections are missing")

    def _check_complete(self) -> None:
        if self._missing:
            raise ValueError(f"{self._missing} bytes of the section are missing")


def prime_field(nbytes: int, prime: int) -> bytes:
    """A prime as headers hold it: u32 size and the number."""
    return struct.pack("<I", nbytes) + prime.to_bytes(nbytes, "little")


def scalar_field(curve: Curve) -> bytes:
    """r of the curve as headers hold it."""
    return prime_field(curve.n8r, curve.r)
