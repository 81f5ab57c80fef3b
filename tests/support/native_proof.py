"""All native work of a Groth16 proof, straight through ``native.py``: for tests of the library and for measuring it.

    python -m tests.support.native_proof KEY.zkey WITNESS.wtns [REPEATS [THREADS]]

prints what each phase takes at best. The proof is made with r = s = 0: it shows that the library is right, and hides
nothing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.native import Call, Field, FieldOp, Group, NativeLibrary, NativeSpan, PointOp, aligned, library

Array = npt.NDArray[np.uint8]


class NativeProof:
    """One key and witness, and the vectors of a proof."""

    def __init__(self, native: NativeLibrary, zkey: ZKey, witness: Witness, threads: int = 0) -> None:
        self.native, self.zkey, self.witness, self.threads = native, zkey, witness, threads
        self.curve: Curve = zkey.curve
        self.table = aligned(native.ntt_table_bytes(self.curve, zkey.log_domain))
        native.ntt_table(self.curve, zkey.log_domain, self.table)
        self.vectors = [aligned(32 * zkey.domain_size) for _ in range(3)]
        self.scratch = aligned(
            max(
                native.msm_scratch_bytes(self.curve, group, len(points), threads)
                for group, points in ((Group.G1, zkey.a), (Group.G2, zkey.b2), (Group.G1, zkey.h))
            )
        )
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.spans: dict[str, list[NativeSpan]] = {}

    def _timed(self, name: str, function: Any, *arguments: Any) -> None:
        call = Call(self.threads, span_capacity=64)
        begin, begin_cpu = time.perf_counter(), time.process_time()
        function(*arguments, call)
        self.seconds[name] = time.perf_counter() - begin
        self.cpu_seconds[name] = time.process_time() - begin_cpu
        self.spans[name] = call.spans()

    def _msm(self, name: str, group: Group, points: Array, scalars: Array) -> Array:
        out = np.empty(points.shape[1], np.uint8)
        assert len(points) == len(scalars)
        self._timed(
            name,
            self.native.msm,
            self.curve,
            group,
            points,
            scalars,
            len(points),
            out,
            self.scratch,
            self.scratch.nbytes,
        )
        return out

    def prove(self) -> tuple[Array, Array, Array]:
        """pi_a, pi_b, pi_c, affine in Montgomery form."""
        zkey, w, native = self.zkey, self.witness.raw, self.native
        a, b, c = self.vectors
        entries = zkey.coefficients
        self._timed("evaluate", native.evaluate, self.curve, entries, len(entries), None, w, zkey.domain_size, a, b, c)
        for name, vector in (("extend a", a), ("extend b", b), ("extend c", c)):
            self._timed(name, native.coset_extend, self.curve, vector, zkey.log_domain, self.table)
        self._timed("join", native.h_join, self.curve, a, b, c, zkey.domain_size)
        sum_a = self._msm("msm A", Group.G1, zkey.a, w)
        self._msm("msm B1", Group.G1, zkey.b1, w)
        sum_b = self._msm("msm B2", Group.G2, zkey.b2, w)
        sum_l = self._msm("msm L", Group.G1, zkey.l, w[zkey.n_public + 1 :])
        sum_h = self._msm("msm H", Group.G1, zkey.h, a.reshape(-1, 32))
        return (
            self.add(Group.G1, sum_a, zkey.alpha1),
            self.add(Group.G2, sum_b, zkey.beta2),
            self.add(Group.G1, sum_l, sum_h),
        )

    def add(self, group: Group, a: Any, b: Any) -> Array:
        out = np.empty(self.curve.g1_bytes * group, np.uint8)
        self.native.point_op(self.curve, group, PointOp.ADD, out, a, b, 1)
        return out

    def verifies(self, proof: tuple[Array, Array, Array]) -> bool:
        """e(-A, B) e(alpha, beta) e(sum of IC, gamma) e(C, delta) = 1."""
        zkey = self.zkey
        minus_a = np.empty_like(proof[0])
        self.native.point_op(self.curve, Group.G1, PointOp.NEG, minus_a, proof[0], None, 1)
        public = np.empty(self.curve.g1_bytes, np.uint8)
        self.native.msm_reference(self.curve, Group.G1, zkey.ic, self.witness.raw, len(zkey.ic), public)
        p = minus_a.tobytes() + zkey.alpha1 + public.tobytes() + proof[2].tobytes()
        q = proof[1].tobytes() + zkey.beta2 + zkey.gamma2 + zkey.delta2
        return self.native.pairing_check(self.curve, p, q, 4)


def field_seconds(native: NativeLibrary, curve: Curve, field: Field, n: int = 1 << 16) -> float:
    """Seconds a multiplication, in cache, on one thread."""
    width = {Field.FR: 32, Field.FQ: curve.n8q, Field.FQ2: 2 * curve.n8q}[field]
    a = np.zeros((n // 64, width), np.uint8)
    a[:, 0] = np.arange(n // 64) % 251
    best = 1e9
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(64):
            native.field_op(curve, field, FieldOp.MUL, a, a, a, len(a), Call(1, span_capacity=1))
        best = min(best, time.perf_counter() - begin)
    return best / (len(a) * 64)


def main(arguments: list[str]) -> int:
    """Command line."""
    native = library()
    zkey, witness = ZKey.open(Path(arguments[0])), Witness.open(Path(arguments[1]))
    repeats = int(arguments[2]) if len(arguments) > 2 else 3
    threads = int(arguments[3]) if len(arguments) > 3 else 0
    proof = NativeProof(native, zkey, witness, threads)
    print(f"{native.isa()}, {threads or native.threads()} threads, scratch {proof.scratch.nbytes / 1e6:.1f} MB")
    best: dict[str, float] = {}
    cpu: dict[str, float] = {}
    made = proof.prove()
    for _ in range(repeats):
        made = proof.prove()
        for name, seconds in proof.seconds.items():
            best[name] = min(seconds, best.get(name, seconds))
            cpu[name] = min(proof.cpu_seconds[name], cpu.get(name, seconds * 1000))
    for name, seconds in best.items():
        phases = "  ".join(
            f"{span.kind.name.lower()} {(span.end_ns - span.start_ns) / 1e6:.1f}" for span in proof.spans[name]
        )
        print(f"{name:10} {seconds * 1e3:8.1f} ms, {cpu[name] * 1e3:6.1f} ms of processors    last: {phases}")
    print(f"{'total':10} {sum(best.values()) * 1e3:8.1f} ms, {sum(cpu.values()) * 1e3:6.1f} ms of processors")
    ok = proof.verifies(made)
    print("proof verifies" if ok else "PROOF DOES NOT VERIFY")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
