"""Keys made for tests, in memory."""

from __future__ import annotations

import io

from cuzk_engine.formats.source import BytesLike, SourceFile
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.layouts import write_params, write_zkey
from cuzk_engine.groth16.setup import System
from cuzk_engine.groth16.toxic import ToxicWaste


def load_system(r1cs: bytes, name: str = "test.r1cs") -> System:
    return System.load(SourceFile.from_buffer(r1cs, name))


def zkey_bytes(system: System, seed: str = "test") -> bytes:
    stream = io.BytesIO()
    write_zkey(system, ToxicWaste.from_seed(system.curve, seed), stream)
    return stream.getvalue()


def params_bytes(system: System, seed: str = "test") -> bytes:
    stream = io.BytesIO()
    write_params(system, ToxicWaste.from_seed(system.curve, seed), stream)
    return stream.getvalue()


def open_zkey(data: BytesLike) -> ZKey:
    return ZKey.from_source(SourceFile.from_buffer(data, "test.zkey"))
