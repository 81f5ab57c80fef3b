"""Numbers and names as people read them. Binary units for memory, decimal for rates; "–" where nothing is known."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

UNKNOWN: Final = "–"
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_CURVES: Final = {"bn128": "BN254", "bn254": "BN254", "bls12381": "BLS12-381"}
_RATES: Final = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")


def plain(text: str, limit: int = 300) -> str:
    """One line without control characters, at most ``limit`` characters: names and messages come from outside."""
    line = "".join(c if c.isprintable() else " " for c in text[: 4 * limit])
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def curve(name: str) -> str:
    """The usual name of a curve: "BN254" for snarkjs's "bn128"."""
    return _CURVES.get(name, plain(name, 30))


def size(value: float | None) -> str:
    """Bytes: "61.2 GiB"."""
    if value is None or math.isnan(value):
        return UNKNOWN
    unit, amount = binary_unit(value)
    number = value / amount
    digits = 0 if unit == "B" else 2 if abs(number) < 10 else 1 if abs(number) < 1000 else 0
    return f"{number:.{digits}f} {unit}"


def binary_unit(value: float) -> tuple[str, float]:
    """The unit in which ``value`` bytes read well, and its size in bytes."""
    power = 0
    while abs(value) >= 1024 ** (power + 1) and power + 1 < len(_BINARY):
        power += 1
    return _BINARY[power], float(1024**power)


def size_of(used: float | None, capacity: float | None) -> str:
    """ "61.2 of 139.8 GiB": both in the unit of the capacity."""
    if not capacity or capacity <= 0:
        return f"{size(used)} used, capacity unknown" if used is not None else "capacity unknown"
    _, amount = binary_unit(capacity)
    whole = size(capacity)
    if used is None:
        return f"{UNKNOWN} of {whole}"
    share = used / amount
    if used and share < 0.05:
        return f"{size(used)} of {whole}"
    return f"{share:.{2 if amount * 10 > capacity else 1}f} of {whole}"


def rate(value: float | None) -> str:
    """Bytes a second: "27.4 GB/s"."""
    if value is None or math.isnan(value):
        return UNKNOWN
    power = 0
    while abs(value) >= 1000 ** (power + 1) and power + 1 < len(_RATES):
        power += 1
    number = value / 1000**power
    return f"{number:.{0 if power == 0 else 2 if abs(number) < 10 else 1}f} {_RATES[power]}"


def duration(ns: float) -> str:
    """ "412 ms", "3.20 s", "2 h 14 min"."""
    if ns < 0:
        return "-" + duration(-ns)
    if ns < 1e3:
        return f"{ns:.0f} ns"
    if ns < 1e6:
        return f"{ns / 1e3:.3g} µs" if ns < 999.5e3 else "1 ms"
    if ns < 1e9:
        return f"{ns / 1e6:.3g} ms" if ns < 999.5e6 else "1 s"
    seconds = ns / 1e9
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return span(seconds)


def span(seconds: float) -> str:
    """A longer time in at most two units: "2 h 14 min", "3 d 4 h"."""
    whole = int(max(seconds, 0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    if whole < 86400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")
    return f"{whole // 86400} d" + (f" {whole % 86400 // 3600} h" if whole % 86400 // 3600 else "")


def clock(wall_ns: int) -> str:
    """Local time of day with milliseconds: "09:41:08.201"."""
    try:
        moment = datetime.fromtimestamp(wall_ns // 1_000_000_000)
    except (OverflowError, OSError, ValueError):
        return UNKNOWN
    return f"{moment:%H:%M:%S}.{wall_ns // 1_000_000 % 1000:03d}"


def count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def short_build(build: str | None) -> str:
    return build[:6] if build else UNKNOWN


_KINDS: Final = {
    "ntt": "NTT",
    "ntt.coset": "coset NTT",
    "pointwise": "(ab − c) / Z",
    "spmv": "matrix–vector product",
    "msm.digits": "MSM: digits",
    "msm.accumulate": "MSM: bucket accumulation",
    "msm.reduce": "MSM: bucket reduction",
    "check": "check",
    "upload.witness": "upload of the witness",
    "upload.abc": "upload of a, b, c",
    "upload.srs": "upload of key points",
    "download.result": "download of results",
    "lock.wait": "waiting for the lock",
    "lock.held": "lock held",
    "host.load_key": "load key",
    "host.read_witness": "read witness",
    "host.evaluate": "evaluate a, b, c",
    "host.assemble": "assemble",
    "host.verify": "verify",
    "host.deliver": "deliver",
    "memory.wait": "waiting for memory",
}
_PHASES: Final = {"lock": "wait for the lock", "memory": "wait for memory", "msm": "MSM", "ntt": "NTT", "h": "NTT"}
_SHORT: Final = {
    "ntt": "NTT",
    "ntt.coset": "coset",
    "pointwise": "join",
    "spmv": "spmv",
    "msm.digits": "digits",
    "msm.accumulate": "MSM",
    "msm.reduce": "reduce",
    "upload.witness": "witness",
    "upload.abc": "a, b, c",
    "upload.srs": "key",
    "download.result": "result",
    "lock.wait": "wait",
    "host.load_key": "load key",
    "host.read_witness": "witness",
    "host.evaluate": "evaluate",
    "host.assemble": "assemble",
    "host.verify": "verify",
    "host.deliver": "deliver",
    "memory.wait": "wait",
}


def kind(name: str) -> str:
    """A span's kind in words; an unknown one as it is."""
    return _KINDS.get(name) or plain(name, 60) or UNKNOWN


def kind_short(name: str) -> str:
    """A span's kind for a label inside its bar."""
    return _SHORT.get(name) or plain(name.rpartition(".")[2], 16)


def lane(name: str) -> str:
    """The name of a lane: "copy up", "worker 0"; an unknown one as it is."""
    known = {"lock": "lock", "compute": "compute", "h2d": "copy up", "d2h": "copy down"}.get(name)
    if known:
        return known
    head, _, number = name.partition(":")
    return f"worker {number}" if head == "host" and number.isdigit() else plain(name, 14)


def phase(name: str) -> str:
    """A job's phase in words; an unknown one as it is."""
    if name in _PHASES:
        return _PHASES[name]
    if name in _KINDS:
        return _KINDS[name]
    if "host." + name in _KINDS:
        return _KINDS["host." + name]
    return plain(name.replace("_", " "), 40)
