"""What the pipeline needs of a proving key, whatever file it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.formats.source import Bytes
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.plan import CircuitSizes, PointRange, Query
from cuzk_engine.groth16.verify import PreparedKey
from cuzk_engine.native import Call

__all__ = ["DeviceMatrices", "HBasis", "KeyElements", "PointRange", "ProvingKey"]


class HBasis(StrEnum):
    """What the points of the H query are multiples of, and so what its scalars are."""

    COSET = "coset"  # Lagrange basis of the odd coset, as snarkjs: a∘b − c there
    MONOMIAL = "monomial"  # powers of tau, as bellperson: the quotient's coefficients


class KeyElements(Protocol):
    """The single points of a key, affine in Montgomery form."""

    @property
    def curve(self) -> Curve: ...
    @property
    def alpha1(self) -> bytes: ...
    @property
    def beta1(self) -> bytes: ...
    @property
    def beta2(self) -> bytes: ...
    @property
    def delta1(self) -> bytes: ...
    @property
    def delta2(self) -> bytes: ...


@dataclass(frozen=True, eq=False, slots=True)
class DeviceMatrices:
    """A and B as a device evaluates them: entries as in section 4 of a zkey, and their order (None: in order)."""

    coefficients: Bytes
    order: npt.NDArray[np.uint32] | None


class ProvingKey(Protocol):
    """A key that was checked and is ready for use, with what is known of its circuit."""

    @property
    def path(self) -> str: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def sizes(self) -> CircuitSizes: ...
    @property
    def elements(self) -> KeyElements: ...
    @property
    def verification_key(self) -> PreparedKey: ...
    @property
    def h_basis(self) -> HBasis: ...

    @property
    def device_matrices(self) -> DeviceMatrices | None:
        """None: only the host can evaluate."""
        ...

    @property
    def staging_bytes(self) -> int:
        """Host memory that ``points`` converts points into; 0 where they are used where they lie."""
        ...

    def is_unchanged(self) -> bool:
        """Whether the files still are what was loaded."""
        ...

    def check_witness(self, witness: Witness) -> None:
        """Raises FormatError when the witness cannot belong to the circuit."""
        ...

    def evaluate(self, witness: Witness, a: Bytes, b: Bytes, c: Bytes, call: Call) -> None:
        """Fills the three vectors over the domain. Raises ProofInvalidError where the circuit is at hand in full and
        the witness violates it."""
        ...

    def ranges(self, query: Query) -> Sequence[PointRange]:
        """The parts in which a query's points are summed; scalars count from the query's first variable."""
        ...

    def points(self, query: Query, part: PointRange, staging: Bytes | None, call: Call) -> Bytes:
        """(n, point bytes) of a part, affine in Montgomery form: a view of the file, or ``staging``, until the next
        call."""
        ...

    def explain(self, witness: Witness) -> str:
        """What is known about a proof that did not verify, "" or beginning with "; "."""
        ...
