"""Numbers and kinds as the diagnosis writes them."""

from __future__ import annotations

from typing import Final

from cuzk_engine.events import Kind

_KINDS: Final[dict[str, str]] = {
    Kind.UPLOAD_WITNESS: "witness",
    Kind.UPLOAD_ABC: "a, b, c",
    Kind.UPLOAD_SRS: "key points",
    Kind.DOWNLOAD_RESULT: "results",
    Kind.LOAD_KEY: "loading the key",
    Kind.READ_WITNESS: "reading the witness",
    Kind.EVALUATE: "evaluating a, b, c",
    Kind.PAGE_LOCK: "page-locking",
    Kind.ASSEMBLE: "assembling",
    Kind.VERIFY: "verifying",
    Kind.DELIVER: "delivering",
    Kind.RESULT_SYNC: "waiting for results",
    Kind.COMPILE: "compiling kernels",
    Kind.POOL_TRIM: "giving pool memory back",
    Kind.MEMORY_WAIT: "waiting for memory",
    Kind.LOCK_WAIT: "waiting for the lock",
}


def kind_words(kind: str) -> str:
    """What was moved, or what was being done."""
    return _KINDS.get(kind, kind)


def ms(nanoseconds: float) -> str:
    """ "0.42 ms", "12.3 ms", "812 ms", "4.31 s", "312 s"."""
    value, unit = (nanoseconds / 1e6, "ms") if abs(nanoseconds) < 999.5e6 else (nanoseconds / 1e9, "s")
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def rate(bytes_a_second: float) -> str:
    """ "6.61 GB/s": decimal, as rates are."""
    for unit, factor in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_a_second >= factor:
            return (
                f"{bytes_a_second / factor:.3g} {unit}"
                if bytes_a_second < 1000 * factor
                else f"{bytes_a_second / factor:.0f} {unit}"
            )
    return f"{bytes_a_second:.0f} B/s"


def percent(share: float) -> str:
    """ "67.7 %", "4.02 %", "0 %"."""
    if not share:
        return "0 %"
    return f"{100 * share:.1f} %" if share >= 0.0995 else f"{100 * share:.2f} %"


def listed(words: list[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def short(job: str) -> str:
    """The first eight characters of a job's id."""
    return job[:8]
