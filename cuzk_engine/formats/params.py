"""Groth16 keys as bellman and bellperson write them (.params, and .vk for the verifying part), on BLS12-381.

No magic, no padding. Points uncompressed in the zcash encoding (see `zcash`), counts u32 big-endian:

    alpha_g1, beta_g1, beta_g2, gamma_g2, delta_g1, delta_g2             864 bytes
    for each of ic, h, l, a, b_g1 (G1) and b_g2 (G2): count, points      a .vk ends after ic

ic has a point for the constant and each public input; h domain − 1 points, in powers of tau; l one for each auxiliary
variable. a, b_g1 and b_g2 leave out variables whose polynomial is zero, inputs first. Keys from a ceremony carry more
bytes after b_g2 (a hash and contributions); their number is shown and they are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cuzk_engine.curves import BLS12_381, Curve
from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats import zcash
from cuzk_engine.formats.guess import HEAD_BYTES, guess
from cuzk_engine.formats.points import encode_g1, encode_g2
from cuzk_engine.formats.proof import VerificationKey
from cuzk_engine.formats.source import COPY_BELOW, Bytes, FileIdentity, SourceFile
from cuzk_engine.units import format_count

PARAMS_NOUN: Final = "a bellperson proving key (params)"
VK_NOUN: Final = "a bellperson verifying key (vk)"

HEADER: Final = (
    ("alpha_g1", 0, zcash.G1_BYTES),
    ("beta_g1", 96, zcash.G1_BYTES),
    ("beta_g2", 192, zcash.G2_BYTES),
    ("gamma_g2", 384, zcash.G2_BYTES),
    ("delta_g1", 576, zcash.G1_BYTES),
    ("delta_g2", 672, zcash.G2_BYTES),
)
HEADER_BYTES: Final = 864
MIN_BYTES: Final = HEADER_BYTES + 4 + zcash.G1_BYTES  # with the one point of ic that every key has
SECTIONS: Final = ("ic", "h", "l", "a", "b_g1", "b_g2")


@dataclass(frozen=True)
class PointSection:
    """Where the points of one section lie; the count stands in the 4 bytes before."""

    name: str
    offset: int  # of the first point
    count: int
    point_bytes: int

    @property
    def size(self) -> int:
        return self.count * self.point_bytes


@dataclass(frozen=True, eq=False)
class Params:
    """A proving key whose structure has been checked: counts against the file's size and against each other.

    The points of the header are converted; those of the sections are views of the file, for the native library to check
    and convert.
    """

    source: SourceFile
    alpha1: bytes  # one point each, affine, little-endian, Montgomery form: as a zkey has them
    beta1: bytes
    beta2: bytes
    gamma2: bytes
    delta1: bytes
    delta2: bytes
    ic: Bytes  # (n_inputs, 96), zcash encoding, like the following
    h: Bytes  # (domain_size - 1, 96)
    l: Bytes  # (n_aux, 96)  # noqa: E741 - the query's name
    a: Bytes  # (≤ n_vars, 96)
    b1: Bytes  # (≤ n_vars, 96)
    b2: Bytes  # (as b1, 192)
    sections: tuple[PointSection, ...]
    trailing_bytes: int

    @classmethod
    def open(cls, path: Path | str, *, copy_below: int = COPY_BELOW) -> Params:
        """Maps the key (or copies it, when it is smaller than `copy_below` bytes) and checks its structure.

        Raises FormatError, and IncompleteFileError where the file ends too soon.
        """
        return cls.from_source(SourceFile.open(path, copy_below=copy_below))

    @classmethod
    def from_source(cls, source: SourceFile) -> Params:
        _check_beginning(source, PARAMS_NOUN)
        header = _read_header(source)
        sections = tuple(_read_sections(source, SECTIONS))
        views = {
            section.name: source.data[section.offset : section.offset + section.size].reshape(
                section.count, section.point_bytes
            )
            for section in sections
        }
        end = sections[-1].offset + sections[-1].size
        return cls(
            source,
            **header,
            ic=views["ic"],
            h=views["h"],
            l=views["l"],
            a=views["a"],
            b1=views["b_g1"],
            b2=views["b_g2"],
            sections=sections,
            trailing_bytes=source.size - end,
        )

    def __repr__(self) -> str:
        return f"<Params {self.path}: {self.n_vars} variables, domain {self.domain_size}>"

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def curve(self) -> Curve:
        return BLS12_381

    @property
    def identity(self) -> FileIdentity | None:
        return self.source.identity

    @property
    def n_inputs(self) -> int:
        """The constant and the public inputs."""
        return int(self.ic.shape[0])

    @property
    def n_public(self) -> int:
        return self.n_inputs - 1

    @property
    def n_aux(self) -> int:
        return int(self.l.shape[0])

    @property
    def n_vars(self) -> int:
        return self.n_inputs + self.n_aux

    @property
    def domain_size(self) -> int:
        return int(self.h.shape[0]) + 1

    @property
    def file_bytes(self) -> int:
        return self.source.size

    def is_unchanged(self) -> bool:
        """Whether the path still leads to the file that was opened, in the same state."""
        return self.source.is_unchanged()

    def verification_key(self) -> VerificationKey:
        """The verifying part; raises FormatError for a point of ic that is badly encoded."""
        return _verification_key(self.source, self.sections[0])


def read_verifying_key(path: Path | str) -> VerificationKey:
    """The key of a .vk file, or the verifying part of a .params file.

    Coordinates are checked for their form; that points lie on their curves and have order r is for the verifier. Raises
    FormatError, IncompleteFileError.
    """
    return verifying_key_from(SourceFile.open(path))


def verifying_key_from(source: SourceFile) -> VerificationKey:
    """Like `read_verifying_key`, from a file that is open."""
    _check_beginning(source, VK_NOUN)
    (ic,) = _read_sections(source, ("ic",))
    if source.size > ic.offset + ic.size:
        return Params.from_source(source).verification_key()  # nothing else may come after ic
    return _verification_key(source, ic)


def structure_of(source: SourceFile) -> str | None:
    """ "params" or "vk" where the file has the structure of one, else None; only flags and counts speak for it."""
    try:
        verifying_key_from(source)
    except FormatError:
        return None
    (ic,) = _read_sections(source, ("ic",))
    return "vk" if source.size == ic.offset + ic.size else "params"


def _check_beginning(source: SourceFile, noun: str) -> None:
    head = source.data[:HEAD_BYTES].tobytes()
    seems = guess(head) if head else None
    if seems:
        raise FormatError(source.path, f"this is {seems}, expected {noun}")
    if source.size < MIN_BYTES:
        what = f"{noun} with {HEADER_BYTES} bytes of header, a count and at least one point of ic"
        raise IncompleteFileError(source.path, what, MIN_BYTES, source.size)


def _read_header(source: SourceFile) -> dict[str, bytes]:
    header = {}
    for name, start, size in HEADER:
        raw = source.data[start : start + size].tobytes()
        try:
            if size == zcash.G1_BYTES:
                header[f"{name[:-3]}1"] = encode_g1(BLS12_381, zcash.read_g1(raw))
            else:
                header[f"{name[:-3]}2"] = encode_g2(BLS12_381, zcash.read_g2(raw))
        except zcash.EncodingFaultError as error:
            raise FormatError(source.path, f"header, {name}: {error}; expected {PARAMS_NOUN}") from error
    return header


def _read_sections(source: SourceFile, names: tuple[str, ...]) -> Iterator[PointSection]:
    position = HEADER_BYTES
    counts: dict[str, int] = {}
    for name in names:
        start = position + 4
        if start > source.size:
            raise IncompleteFileError(source.path, f"the count of section {name}", start, source.size)
        count = int.from_bytes(source.data[position:start].tobytes(), "big")
        section = PointSection(name, start, count, zcash.G2_BYTES if name == "b_g2" else zcash.G1_BYTES)
        points = format_count(count, "point")
        if start + section.size > source.size:
            what = f"section {name} ({points} of {section.point_bytes} bytes from offset {start:,})"
            raise IncompleteFileError(source.path, what, start + section.size, source.size)
        counts[name] = count
        expected = _wrong_count(name, counts)
        if expected:
            raise FormatError(source.path, f"section {name} has {points}, expected {expected}")
        yield section
        position = start + section.size


def _wrong_count(name: str, counts: dict[str, int]) -> str | None:
    """What the count of a section should be, given those of the sections before it; None when it is right."""
    ic, count, n_vars = counts["ic"], counts[name], counts["ic"] + counts.get("l", 0)
    match name:
        case "ic" if count == 0:
            return "one for the constant and each public input"
        case "h" if count == 0 or count & (count + 1):
            return "one fewer than a power of two"
        case "h" if count + 1 < ic:
            return f"more: each of the {ic:,} inputs of section ic takes a row"
        case "a" if not ic <= count <= n_vars:
            return f"{ic:,} (inputs) to {n_vars:,} (all variables)"
        case "b_g1" if count > n_vars:
            return f"at most {n_vars:,}, one for each variable"
        case "b_g2" if count != counts["b_g1"]:
            return f"{counts['b_g1']:,}, as many as section b_g1 has"
    return None


def _verification_key(source: SourceFile, ic: PointSection) -> VerificationKey:
    def point(read: Any, start: int, size: int, where: str) -> Any:
        try:
            return read(source.data[start : start + size].tobytes())
        except zcash.EncodingFaultError as error:
            raise FormatError(source.path, f"{where}: {error}") from error

    places = {name: (start, size) for name, start, size in HEADER}
    for name in ("beta_g1", "delta_g1"):  # not needed to verify, but damaged all the same
        point(zcash.read_g1, *places[name], f"header, {name}")
    return VerificationKey(
        BLS12_381,
        point(zcash.read_g1, *places["alpha_g1"], "header, alpha_g1"),
        point(zcash.read_g2, *places["beta_g2"], "header, beta_g2"),
        point(zcash.read_g2, *places["gamma_g2"], "header, gamma_g2"),
        point(zcash.read_g2, *places["delta_g2"], "header, delta_g2"),
        tuple(
            point(zcash.read_g1, ic.offset + index * ic.point_bytes, ic.point_bytes, f"section ic, point {index:,}")
            for index in range(ic.count)
        ),
    )
