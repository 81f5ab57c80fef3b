"""Proving keys as snarkjs writes them (.zkey, Groth16).

Points are affine, coordinates little-endian and in Montgomery form, infinity all zero. The H query is in the Lagrange
basis of the odd coset of the domain, not in powers of tau.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cuzk_engine.curves import SUPPORTED, Curve, curve_by_q, describe_prime
from cuzk_engine.formats.container import Container, Cursor, FormatSpec
from cuzk_engine.formats.source import COPY_BELOW, Bytes, FileIdentity, SourceFile

GROTH16: Final = 1
_PROTOCOLS: Final = {1: "Groth16", 2: "PLONK", 10: "FFLONK"}

ZKEY_SPEC: Final = FormatSpec(
    magic=b"zkey",
    noun="a proving key (zkey)",
    version=1,
    names={
        1: "protocol",
        2: "header",
        3: "IC",
        4: "coefficients",
        5: "A query",
        6: "B query in G1",
        7: "B query in G2",
        8: "L query",
        9: "H query",
        10: "contributions",
    },
    needed=range(1, 10),
    optional=(10,),
)
COEFFICIENT_BYTES: Final = 44  # u32 matrix (0 A, 1 B), u32 constraint, u32 signal, 32 bytes value * R^2 mod r


@dataclass(frozen=True, eq=False)
class ZKey:
    """A Groth16 proving key whose structure has been checked; points and coefficients are views of the file.

    Structure means: primes, counts, and the exact length of every section. That points lie on their curves and
    coefficients name existing rows and signals is for the native library to check, once a key.
    """

    source: SourceFile
    curve: Curve
    n_vars: int  # signals, with the constant 1
    n_public: int  # outputs and public inputs, without the constant 1
    domain_size: int  # a power of two, 2 to 2^31
    alpha1: bytes  # one point each, as in the file
    beta1: bytes
    beta2: bytes
    gamma2: bytes
    delta1: bytes
    delta2: bytes
    ic: Bytes  # (n_public + 1, g1_bytes)
    coefficients: Bytes  # (n, COEFFICIENT_BYTES): the entries of A and B, and the rows of A for public signals
    a: Bytes  # (n_vars, g1_bytes)
    b1: Bytes  # (n_vars, g1_bytes)
    b2: Bytes  # (n_vars, g2_bytes)
    l: Bytes  # (n_vars - n_public - 1, g1_bytes)  # noqa: E741 - the query's name in the paper
    h: Bytes  # (domain_size, g1_bytes)

    @classmethod
    def open(cls, path: Path | str, *, copy_below: int = COPY_BELOW) -> ZKey:
        """Maps the key (or copies it, when it is smaller than `copy_below` bytes) and checks its structure.

        Raises FormatError, and IncompleteFileError where the file ends too soon.
        """
        return cls.from_source(SourceFile.open(path, copy_below=copy_below))

    @classmethod
    def from_source(cls, source: SourceFile) -> ZKey:
        container = open_container(source)
        return _read(container)

    def __repr__(self) -> str:
        return f"<ZKey {self.path}: {self.curve.title}, {self.n_vars} signals, domain {self.domain_size}>"

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def identity(self) -> FileIdentity | None:
        return self.source.identity

    @property
    def log_domain(self) -> int:
        return self.domain_size.bit_length() - 1

    @property
    def n_coefficients(self) -> int:
        return int(self.coefficients.shape[0])

    @property
    def n_private(self) -> int:
        """Signals that are neither the constant nor public: the length of the L query."""
        return self.n_vars - self.n_public - 1

    @property
    def file_bytes(self) -> int:
        return self.source.size

    def content_hash(self) -> str:
        """BLAKE2b-256 of the whole file in hexadecimal; computed once."""
        return self.source.content_hash()

    def is_unchanged(self) -> bool:
        """Whether the path still leads to the file that was opened, in the same state."""
        return self.source.is_unchanged()


def open_container(source: SourceFile) -> Container:
    """The table of sections of a zkey; refuses other protocols by name, since their sections differ."""
    spec = FormatSpec(ZKEY_SPEC.magic, ZKEY_SPEC.noun, ZKEY_SPEC.version, ZKEY_SPEC.names, needed=(1,))
    header = Container.parse(source, spec)
    cursor = Cursor(header, 1)
    protocol = cursor.u32("the protocol")
    cursor.finish()
    if protocol != GROTH16:
        known = _PROTOCOLS.get(protocol)
        name = f"a {known} key" if known else f"a key for the unknown protocol {protocol}"
        header.fail(f"this is {name}, expected Groth16, the only protocol supported")
    return Container.parse(source, ZKEY_SPEC)


def _read(container: Container) -> ZKey:
    cursor = Cursor(container, 2)
    curve = _read_curve(container, cursor)
    n_vars = cursor.u32("the number of signals")
    n_public = cursor.u32("the number of public signals")
    domain = cursor.u32("the domain size")
    g1, g2 = curve.g1_bytes, curve.g2_bytes
    alpha1, beta1 = cursor.take(g1, "alpha in G1"), cursor.take(g1, "beta in G1")
    beta2, gamma2 = cursor.take(g2, "beta in G2"), cursor.take(g2, "gamma in G2")
    delta1, delta2 = cursor.take(g1, "delta in G1"), cursor.take(g2, "delta in G2")
    cursor.finish()
    _check_counts(container, curve, n_vars, n_public, domain)

    def points(section_type: int, count: int, size: int) -> Bytes:
        container.check_size(section_type, count * size, f"{count:,} points of {size} bytes")
        return container.view(section_type).reshape(count, size)

    return ZKey(
        source=container.source,
        curve=curve,
        n_vars=n_vars,
        n_public=n_public,
        domain_size=domain,
        alpha1=alpha1,
        beta1=beta1,
        beta2=beta2,
        gamma2=gamma2,
        delta1=delta1,
        delta2=delta2,
        ic=points(3, n_public + 1, g1),
        coefficients=_coefficients(container),
        a=points(5, n_vars, g1),
        b1=points(6, n_vars, g1),
        b2=points(7, n_vars, g2),
        l=points(8, n_vars - n_public - 1, g1),
        h=points(9, domain, g1),
    )


def _read_curve(container: Container, cursor: Cursor) -> Curve:
    n8q, q = cursor.prime("the base field's prime")
    curve = curve_by_q(q)
    if curve is None:
        container.fail(f"base field is not supported: {describe_prime(q)}; expected that of {SUPPORTED}")
    n8r, r = cursor.prime("the scalar field's prime")
    if r != curve.r:
        container.fail(f"scalar field is {describe_prime(r)}, expected {curve.title}'s like the base field")
    for field, found, expected in (("base", n8q, curve.n8q), ("scalar", n8r, curve.n8r)):
        if found != expected:
            container.fail(f"{field} field elements of {found} bytes, expected {expected} on {curve.title}")
    return curve


def _check_counts(container: Container, curve: Curve, n_vars: int, n_public: int, domain: int) -> None:
    if n_public >= n_vars:
        container.fail(f"header says {n_public:,} public signals of {n_vars:,} signals, expected fewer than all")
    if domain < 2 or domain & (domain - 1):
        container.fail(f"domain size is {domain:,}, expected a power of two of at least 2")
    if domain > curve.max_domain:
        container.fail(f"domain size is {domain:,}, expected at most {curve.max_domain:,} on {curve.title}")
    if domain < n_public + 1:
        container.fail(
            f"domain size is {domain:,}, expected at least {n_public + 1:,}: one row for each of {n_public:,} public "
            "signals and the constant"
        )


def _coefficients(container: Container) -> Bytes:
    cursor = Cursor(container, 4)
    count = cursor.u32("the number of coefficients")
    container.check_size(4, 4 + count * COEFFICIENT_BYTES, f"{count:,} coefficients of {COEFFICIENT_BYTES} bytes")
    return container.view(4)[4:].reshape(count, COEFFICIENT_BYTES)
