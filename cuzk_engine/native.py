"""The native CPU library (``kernels/cuzk.h``) through ctypes.

``library()`` loads it once, on first use, and refuses one that was built from other sources than those beside the
package. Calls release the interpreter lock. Data is given as a NumPy array, any object with the buffer protocol (an
``mmap``), or an address; the caller answers for its size. Numbers are little-endian 64-bit limbs, points affine in
Montgomery form, as ``cuzk.h`` says for each function.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sysconfig
import threading
from array import array
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Final

from cuzk_engine.curves import Curve
from cuzk_engine.errors import NativeLibraryError
from cuzk_engine.native_call import (
    Call,
    CoefficientFacts,
    Data,
    Field,
    FieldOp,
    Group,
    NativeCallError,
    NativeSpan,
    NttFlags,
    PointFault,
    PointOp,
    PointProblem,
    Signatures,
    SpanKind,
    Status,
    aligned,
    memory_threads,
)
from cuzk_engine.native_call import pointer as _pointer
from cuzk_engine.native_call import reference as _call
from cuzk_engine.native_csr import CSR_SIGNATURES, CsrFunctions
from cuzk_engine.native_proof import PROOF_SIGNATURES, ProofFunctions
from cuzk_engine.native_replay import REPLAY_SIGNATURES, ReplayFunctions
from cuzk_engine.native_setup import SETUP_SIGNATURES, SetupFunctions

__all__ = [
    "Call",
    "CoefficientFacts",
    "Data",
    "Field",
    "FieldOp",
    "Group",
    "NativeCallError",
    "NativeLibrary",
    "NativeSpan",
    "NttFlags",
    "PointFault",
    "PointOp",
    "PointProblem",
    "SpanKind",
    "Status",
    "aligned",
    "library",
    "memory_threads",
]

LIBRARY_NAME: Final = "libcuzk_native.so"
FEATURES_VARIABLE: Final = "CUZK_CPU_FEATURES"
"""Environment variable: the instructions that may be used, see ``cuzk_isa`` in ``cuzk.h``."""
FEATURES: Final = ("portable", "bmi2", "adx", "avx512ifma")
LIBRARY_VARIABLE: Final = "CUZK_NATIVE_LIBRARY"
"""Environment variable: the library's path, instead of the installed one (a build with sanitizers, say)."""


class NativeLibrary(CsrFunctions, ProofFunctions, ReplayFunctions, SetupFunctions):
    """Every function of ``cuzk.h``, by its name without ``cuzk_``.

    A cancelled call raises CancelledError; arguments or scratch that the library refuses raise NativeCallError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(ctypes.CDLL(str(path)), _SIGNATURES)

    # ---- library ----

    def source_hash(self) -> str:
        """64 hexadecimal digits over ``kernels/`` as it was when the library was built."""
        return str(self._dll.cuzk_source_hash().decode())

    def isa(self) -> str:
        """The code path in use, such as "portable" or "bmi2+adx"."""
        return str(self._dll.cuzk_isa().decode())

    def isa_available(self) -> tuple[str, ...]:
        """The code paths that this processor can run, best last."""
        return tuple(self._dll.cuzk_isa_available().decode().split(","))

    def threads(self) -> int:
        """How many threads ``threads=0`` means."""
        return int(self._dll.cuzk_threads())

    def has_to_wait(self, microseconds: int) -> bool:
        """Sleeps so long without the interpreter lock, then takes it; whether another thread held it."""
        return bool(self._dll.cuzk_has_to_wait(microseconds, _ENTER, _LEAVE))

    def run_before_pool(self, niceness: int, slice_ns: int) -> int:
        """The calling thread, and those that it starts, get to run soon after they wake: they ask for time slices of
        ``slice_ns``, and the pool's threads run at ``niceness``, from -20 to 19. 0, or why the system refused, an
        errno."""
        return int(self._dll.cuzk_run_before_pool(niceness, slice_ns))

    def bytes_copy(self, to: Data, source: Data, n: int, call: Call | None = None) -> None:
        """Copies n bytes; the two must not overlap."""
        self._run("bytes_copy", _pointer(to), _pointer(source), n, _call(call))

    def bytes_zero(self, data: Data, n: int, call: Call | None = None) -> None:
        self._run("bytes_zero", _pointer(data), n, _call(call))

    # ---- fields ----

    def field_op(
        self, curve: Curve, field: Field, op: FieldOp, out: Data, a: Data, b: Data, n: int, call: Call | None = None
    ) -> None:
        """out[i] = a[i] op b[i]; ``b`` None for unary operations."""
        self._run("field_op", curve.id, field, op, _pointer(out), _pointer(a), _pointer(b), n, _call(call))

    def field_check(self, curve: Curve, field: Field, a: Data, n: int, call: Call | None = None) -> int | None:
        """The number of the first of n elements that is not below the modulus."""
        bad = c_uint64()
        fine = self._run("field_check", curve.id, field, _pointer(a), n, ctypes.byref(bad), _call(call))
        return None if fine else bad.value

    def fr_classify(self, curve: Curve, a: Data, n: int, call: Call | None = None) -> tuple[int, int, int]:
        """How many of n plain Fr elements are 0, 1, and anything else."""
        counts = (c_uint64 * 3)()
        self._run("fr_classify", curve.id, _pointer(a), n, counts, _call(call))
        return counts[0], counts[1], counts[2]

    # ---- curves ----

    def point_op(
        self, curve: Curve, group: Group, op: PointOp, out: Data, a: Data, b: Data, n: int, call: Call | None = None
    ) -> None:
        """Affine points in, affine points out; ``b``: points, plain Fr scalars (MUL) or None."""
        self._run("point_op", curve.id, group, op, _pointer(out), _pointer(a), _pointer(b), n, _call(call))

    def point_sums(
        self, curve: Curve, group: Group, sums: Sequence[Sequence[tuple[bytes, int]]], call: Call | None = None
    ) -> list[bytes]:
        """Of affine points times scalars below r, at least one each; a factor of 1 costs an addition alone."""
        size = curve.g2_bytes if group is Group.G2 else curve.g1_bytes
        terms = [term for terms in sums for term in terms]
        count, n = len(sums), len(terms)
        points = b"".join([point for point, _ in terms])
        scalars = b"".join([scalar.to_bytes(32, "little") for _, scalar in terms])
        if len(points) != size * n:
            raise ValueError(f"{len(points)} bytes for {n} points of {size}")
        counts, out = array("I", map(len, sums)), array("B", bytes(size * (count + 2)))  # and the scratch
        at, counts_at = out.buffer_info()[0], counts.buffer_info()[0]
        self._run("point_sums", curve.id, group, points, scalars, counts_at, count, at, at + size * count, _call(call))
        found = out.tobytes()
        return [found[start : start + size] for start in range(0, size * count, size)]

    def points_check(
        self, curve: Curve, group: Group, points: Data, n: int, check_subgroup: bool, call: Call | None = None
    ) -> PointProblem | None:
        """The first of n points with a coordinate out of range, off the curve, or (if asked) not of order r."""
        bad, fault = c_uint64(), c_int()
        fine = self._run(
            "points_check",
            curve.id,
            group,
            _pointer(points),
            n,
            int(check_subgroup),
            ctypes.byref(bad),
            ctypes.byref(fault),
            _call(call),
        )
        return None if fine else PointProblem(bad.value, PointFault(fault.value))

    def points_present(self, curve: Curve, group: Group, points: Data, n: int, call: Call | None = None) -> int:
        """How many of n points are not infinity."""
        present = c_uint64()
        self._run("points_present", curve.id, group, _pointer(points), n, ctypes.byref(present), _call(call))
        return present.value

    # ---- NTT ----

    def ntt_table_bytes(self, curve: Curve, log_n: int) -> int:
        """Size of the table for a domain of 2^log_n; 0 when the curve has no such domain."""
        return int(self._dll.cuzk_ntt_table_bytes(curve.id, log_n))

    def ntt_table(self, curve: Curve, log_n: int, table: Data, call: Call | None = None) -> None:
        self._run("ntt_table", curve.id, log_n, _pointer(table), _call(call))

    def ntt(self, curve: Curve, data: Data, log_n: int, flags: NttFlags, table: Data, call: Call | None = None) -> None:
        """In place, Montgomery form."""
        self._run("ntt", curve.id, _pointer(data), log_n, int(flags), _pointer(table), _call(call))

    def coset_scale(
        self, curve: Curve, data: Data, log_n: int, inverse: bool, reverse: bool, table: Data, call: Call | None = None
    ) -> None:
        """data[i] *= g^i, or g^-i; ``reverse``: data is in bit-reversed order."""
        self._run(
            "coset_scale", curve.id, _pointer(data), log_n, int(inverse), int(reverse), _pointer(table), _call(call)
        )

    def coset_extend(self, curve: Curve, data: Data, log_n: int, table: Data, call: Call | None = None) -> None:
        """Values on the domain become values on the odd coset."""
        self._run("coset_extend", curve.id, _pointer(data), log_n, _pointer(table), _call(call))

    # ---- Groth16 vectors ----

    def coefficients_check(
        self, curve: Curve, entries: Data, n: int, n_vars: int, domain: int, call: Call | None = None
    ) -> CoefficientFacts | int:
        """Facts about n entries of 44 bytes, or the number of the first bad one."""
        is_sorted, nonzeros, bad = c_int(), (c_uint64 * 2)(), c_uint64()
        fine = self._run(
            "coefficients_check",
            curve.id,
            _pointer(entries),
            n,
            n_vars,
            domain,
            ctypes.byref(is_sorted),
            nonzeros,
            ctypes.byref(bad),
            _call(call),
        )
        return CoefficientFacts(bool(is_sorted.value), nonzeros[0], nonzeros[1]) if fine else bad.value

    def coefficients_order(
        self, entries: Data, n: int, domain: int, order: Data, scratch: Data, call: Call | None = None
    ) -> None:
        """``order``: n uint32; ``scratch``: (domain + 1) * 8 bytes."""
        self._run("coefficients_order", _pointer(entries), n, domain, _pointer(order), _pointer(scratch), _call(call))

    def evaluate(
        self,
        curve: Curve,
        entries: Data,
        n: int,
        order: Data,
        w: Data,
        domain: int,
        a: Data,
        b: Data,
        c: Data,
        call: Call | None = None,
    ) -> None:
        """a = A w, b = B w, c = a o b; ``order`` None for sorted entries, ``c`` may be None."""
        self._run(
            "evaluate",
            curve.id,
            _pointer(entries),
            n,
            _pointer(order),
            _pointer(w),
            domain,
            _pointer(a),
            _pointer(b),
            _pointer(c),
            _call(call),
        )

    def h_join(self, curve: Curve, a: Data, b: Data, c: Data, n: int, call: Call | None = None) -> None:
        """a = a b - c, out of Montgomery form."""
        self._run("h_join", curve.id, _pointer(a), _pointer(b), _pointer(c), n, _call(call))

    # ---- MSM ----

    def msm_scratch_bytes(self, curve: Curve, group: Group, n: int, threads: int = 0) -> int:
        return int(self._dll.cuzk_msm_scratch_bytes(curve.id, group, n, threads))

    def msm(
        self,
        curve: Curve,
        group: Group,
        points: Data,
        scalars: Data,
        n: int,
        out: Data,
        scratch: Data,
        scratch_bytes: int,
        call: Call | None = None,
    ) -> None:
        """out = sum of scalars[i] * points[i]; scalars plain and below r."""
        if not self._run(
            "msm",
            curve.id,
            group,
            _pointer(points),
            _pointer(scalars),
            n,
            _pointer(out),
            _pointer(scratch),
            scratch_bytes,
            _call(call),
        ):
            raise NativeCallError("cuzk_msm", Status.DATA)

    def msm_reference(self, curve: Curve, group: Group, points: Data, scalars: Data, n: int, out: Data) -> None:
        self._run("msm_reference", curve.id, group, _pointer(points), _pointer(scalars), n, _pointer(out))

    # ---- pairing ----

    def pairing_check(self, curve: Curve, p: Data, q: Data, n: int, call: Call | None = None) -> bool:
        """Whether the product of e(p[i], q[i]) is 1."""
        is_one = c_int()
        self._run("pairing_check", curve.id, _pointer(p), _pointer(q), n, ctypes.byref(is_one), _call(call))
        return bool(is_one.value)

    def pairing(self, curve: Curve, p: Data, q: Data, out: Data, call: Call | None = None) -> None:
        """e(p, q): 12 plain Fq coefficients."""
        self._run("pairing", curve.id, _pointer(p), _pointer(q), _pointer(out), _call(call))


_P = c_void_p
_ENTER: Final = ctypes.cast(ctypes.pythonapi.PyGILState_Ensure, _P)
_LEAVE: Final = ctypes.cast(ctypes.pythonapi.PyGILState_Release, _P)
_SIGNATURES: Final[Signatures] = {
    "source_hash": (c_char_p, ()),
    "isa": (c_char_p, ()),
    "isa_available": (c_char_p, ()),
    "threads": (c_uint32, ()),
    "has_to_wait": (c_int, (c_uint32, _P, _P)),
    "run_before_pool": (c_int, (c_int, c_uint64)),
    "bytes_copy": (c_int, (_P, _P, c_uint64, _P)),
    "bytes_zero": (c_int, (_P, c_uint64, _P)),
    "field_op": (c_int, (c_int, c_int, c_int, _P, _P, _P, c_uint64, _P)),
    "field_check": (c_int, (c_int, c_int, _P, c_uint64, _P, _P)),
    "fr_classify": (c_int, (c_int, _P, c_uint64, _P, _P)),
    "point_op": (c_int, (c_int, c_int, c_int, _P, _P, _P, c_uint64, _P)),
    "point_sums": (c_int, (c_int, c_int, _P, _P, _P, c_uint64, _P, _P, _P)),
    "points_check": (c_int, (c_int, c_int, _P, c_uint64, c_int, _P, _P, _P)),
    "points_present": (c_int, (c_int, c_int, _P, c_uint64, _P, _P)),
    "ntt_table_bytes": (c_uint64, (c_int, c_uint32)),
    "ntt_table": (c_int, (c_int, c_uint32, _P, _P)),
    "ntt": (c_int, (c_int, _P, c_uint32, c_int, _P, _P)),
    "coset_scale": (c_int, (c_int, _P, c_uint32, c_int, c_int, _P, _P)),
    "coset_extend": (c_int, (c_int, _P, c_uint32, _P, _P)),
    "coefficients_check": (c_int, (c_int, _P, c_uint64, c_uint64, c_uint64, _P, _P, _P, _P)),
    "coefficients_order": (c_int, (_P, c_uint64, c_uint64, _P, _P, _P)),
    "evaluate": (c_int, (c_int, _P, c_uint64, _P, _P, c_uint64, _P, _P, _P, _P)),
    "h_join": (c_int, (c_int, _P, _P, _P, c_uint64, _P)),
    "msm_scratch_bytes": (c_uint64, (c_int, c_int, c_uint64, c_uint32)),
    "msm": (c_int, (c_int, c_int, _P, _P, c_uint64, _P, _P, c_uint64, _P)),
    "msm_reference": (c_int, (c_int, c_int, _P, _P, c_uint64, _P)),
    "pairing_check": (c_int, (c_int, _P, _P, c_uint64, _P, _P)),
    "pairing": (c_int, (c_int, _P, _P, _P, _P)),
    **CSR_SIGNATURES,
    **PROOF_SIGNATURES,
    **REPLAY_SIGNATURES,
    **SETUP_SIGNATURES,
}


def library() -> NativeLibrary:
    """The library, loaded on first use. NativeLibraryError when it is missing or does not match its sources."""
    with _LOAD_LOCK:
        return _load()


_LOAD_LOCK: Final = threading.Lock()  # functools.cache alone would let two threads load


@functools.cache
def _load() -> NativeLibrary:
    unknown = [word for word in filter(None, os.environ.get(FEATURES_VARIABLE, "").split(",")) if word not in FEATURES]
    if unknown:
        raise NativeLibraryError(
            f"{FEATURES_VARIABLE}: {unknown[0]} is unknown; known are {', '.join(FEATURES)}, or nothing at all"
        )
    package = Path(__file__).resolve().parent
    path = _find(package)
    try:
        loaded = NativeLibrary(path)
    except (OSError, AttributeError) as error:
        raise NativeLibraryError(f"{path}: cannot be loaded ({error}); run make setup") from error
    sources = kernels_folder(package)
    if sources is None:
        raise NativeLibraryError(f"{package}: the kernels that {path.name} was built from are missing; run make setup")
    built, found = loaded.source_hash(), source_hash(sources)
    if built != found:
        raise NativeLibraryError(
            f"{path}: built from kernels {built[:12]}, but {sources} holds {found[:12]}; run make setup"
        )
    return loaded


def _find(package: Path) -> Path:
    chosen = os.environ.get(LIBRARY_VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    installed = Path(sysconfig.get_path("platlib")) / package.name
    for folder in (package, installed):
        path = folder / "_native" / LIBRARY_NAME
        if path.is_file():
            return path
    raise NativeLibraryError(f"{package / '_native' / LIBRARY_NAME}: not found; run make setup")


def kernels_folder(package: Path) -> Path | None:
    """The sources of the native library: inside an installed package, beside it in a checkout."""
    for folder in (package / "_kernels", package.parent / "kernels"):
        if (folder / "cuzk.h").is_file():
            return folder
    return None


def source_hash(folder: Path) -> str:
    """The same as tools/source_hash.py, which is not installed: over sorted relative paths, lengths and contents."""
    digest = hashlib.sha256()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name in sorted(files):
        if name.rpartition("/")[2].startswith(".") or "__pycache__" in name:
            continue
        data = files[name].read_bytes()
        encoded = name.encode()
        digest.update(b"%d %d\n" % (len(encoded), len(data)))
        digest.update(encoded)
        digest.update(data)
    return digest.hexdigest()
