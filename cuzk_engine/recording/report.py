"""What ``cuzk diagnose`` prints: one recording, or two side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from cuzk_engine.diagnosis import summary as summaries
from cuzk_engine.diagnosis.findings import remedy_words
from cuzk_engine.diagnosis.gaps import threshold_of
from cuzk_engine.diagnosis.summary import Summary
from cuzk_engine.diagnosis.words import kind_words, ms, percent, rate
from cuzk_engine.events import Cause, Finding, Lane
from cuzk_engine.recording.contents import Contents
from cuzk_engine.units import format_size

_SETTINGS: Final = (
    ("pipeline.prestage", "pre-staging"),
    ("pipeline.double_buffer", "double buffering"),
    ("pipeline.evaluate", "evaluation"),
    ("srs.residency", "key residency"),
)
_DIRECTION: Final[dict[str, str]] = {Lane.H2D: "up", Lane.D2H: "down"}
_MEMORY: Final = {True: "page-locked", False: "pageable", None: ""}
_MOST: Final = 100.0
Cells = Sequence[str]


def document(contents: Contents) -> dict[str, Any]:
    """Everything, for JSON."""
    info, identity = contents.info, contents.info.identity
    peaks = contents.peaks
    return {
        "path": info.path,
        "engine": {"version": identity.version, "build": identity.build},
        "started_unix_ns": contents.start_ns + info.wall_offset_ns,
        "seconds": (contents.end_ns - contents.start_ns) / 1e9,
        "events": info.events,
        "lost": info.lost,
        "dropped_until_ns": info.dropped_until_ns,
        "damage": contents.damage,
        "settings": contents.settings.common,
        "workers": {device: contents.situation(device).workers for device in contents.devices},
        "marks": [
            {"seconds": _after(contents, m.time_ns), "kind": m.kind, "text": m.text, "device": m.device}
            for m in contents.marks
        ],
        "devices": [summaries.document(contents.summary(device)) for device in contents.devices],
        "memory": {
            device: {
                "peak": peak.bytes,
                "by_purpose": peak.by_purpose,
                "most": {name: nbytes for (of, name), nbytes in peaks.most.items() if of == device},
            }
            for device, peak in peaks.peaks.items()
        },
    }


def lines(contents: Contents) -> Iterator[str]:
    """The report of one recording."""
    yield from _head(contents)
    findings: list[Finding] = []
    for device in contents.devices:
        summary = contents.summary(device)
        findings += summary.findings
        yield from _device(contents, summary)
    yield from _memory(contents)
    yield from _findings(findings)


def comparison(a: Contents, b: Contents) -> Iterator[str]:
    """Two recordings side by side; devices are paired by name, or because each has one only."""
    for letter, contents in (("A", a), ("B", b)):
        first, *rest = _head(contents)
        yield f"{letter}  {first}"
        yield from (f"   {line}" for line in rest)
    pairs = [(device, device) for device in a.devices if device in b.devices]
    if not pairs and len(a.devices) == len(b.devices) == 1:
        pairs = [(a.devices[0], b.devices[0])]
    if not pairs:
        yield ""
        yield f"no device is in both: A has {', '.join(a.devices) or 'none'}, B has {', '.join(b.devices) or 'none'}"
    for one, other in pairs:
        yield ""
        yield one if one == other else f"{one} and {other}"
        yield from _table(_compared(a, a.summary(one), b, b.summary(other)))


# ---- one recording ----


def _head(contents: Contents) -> Iterator[str]:
    info, identity = contents.info, contents.info.identity
    yield info.path
    start = datetime.fromtimestamp((contents.start_ns + info.wall_offset_ns) / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    length = ms(contents.end_ns - contents.start_ns)
    lost = f", {info.lost:,} events were lost" if info.lost else "" if contents.damage else ", nothing lost"
    incomplete = ", incomplete" if contents.damage else ""
    yield f"  {start}, {length}; cuzk {identity.version}, build {identity.build[:8] or 'unknown'}{lost}{incomplete}"
    if info.dropped_until_ns is not None:
        yield "  the oldest part was dropped for the size limit; this is what was left"
    known = list(_settings(contents))
    if known:
        yield f"  {' · '.join(known)}"
    changes = [mark for mark in contents.marks if mark.kind == "setting"]
    if changes:
        yield "  changed meanwhile (the settings above are those at the end; --from and --to choose a part):"
        for mark in changes:
            where = f" on {mark.device}" if mark.device else ""
            yield f"    at {ms(mark.time_ns - contents.start_ns)}: {mark.text}{where}"
    if contents.damage:
        yield f"  incomplete: {contents.damage.removeprefix(info.path).lstrip(': ')}"


def _settings(contents: Contents) -> Iterator[str]:
    values = contents.settings.common
    workers = {device: contents.situation(device).workers for device in contents.devices}
    if workers and all(workers.values()):
        numbers = sorted(set(workers.values()))
        each = ", ".join(f"{number} on {device}" for device, number in workers.items())
        yield f"workers {numbers[0] if len(numbers) == 1 else each}"
    words = {"true": "on", "false": "off"}
    yield from (f"{name} {words.get(values[key], values[key])}" for key, name in _SETTINGS if key in values)


def _device(contents: Contents, summary: Summary) -> Iterator[str]:
    described = contents.describe(summary.device)
    name = f", {described.name}" if described is not None and described.name else ""
    limit = f", {format_size(described.capacity)}" if described is not None and described.capacity else ""
    yield ""
    yield f"{summary.device}{name}{limit}"
    if not summary.shares.by_kind:
        yield "  no kernel ran"
    yield from _table(_time_rows(summary), note=True)
    if summary.partitions:
        count = summary.partitions[summaries.WHOLE].count
        yield ""
        yield f"  partitions: {count:,}, one in {ms(summary.partition_ns or 0)} of the time with work"
        rows: list[Cells] = [("", "median", "10 %", "90 %")]
        for part, spread in summary.partitions.items():
            rows.append((f"  {part}", ms(spread.median), ms(spread.low), ms(spread.high)))
        yield from _table(rows)
    if summary.transfers:
        yield ""
        yield "  transfers"
        rows = [("", "", "", "count", "bytes", "time", "rate")]
        for row in summary.transfers:
            direction = _DIRECTION.get(row.lane, row.lane)
            speed = "" if row.rate is None else rate(row.rate)
            cells = (f"{row.count:,}", format_size(row.bytes), ms(row.nanoseconds), speed)
            rows.append((f"  {kind_words(row.kind)}", direction, _MEMORY[row.pinned], *cells))
        yield from _table(rows, left=3)


def _time_rows(summary: Summary) -> list[Cells]:
    times, window = summary.shares, max(1, summary.shares.window)

    def row(name: str, took: float, note: str = "") -> Cells:
        return (name, ms(took), percent(took / window), note)

    with_work = f"{percent(summary.busy_share_with_work)} of the time with work"
    has_empty = Cause.QUEUE_EMPTY in summary.idleness.by_cause()
    rows = [row("kernels ran", times.busy, with_work if has_empty else ""), row("idle", times.idle)]
    for cause, took in summary.idleness.by_cause().items():
        count = sum(gap.cause == cause for gap in summary.idleness.gaps)
        rows.append(row(f"  {cause}", took, f"{count:,} gaps" if count != 1 else "1 gap"))
    if summary.idleness.short_ns:
        limit = ms(threshold_of(summary.device))
        rows.append(row("  between kernels", summary.idleness.short_ns, f"each below {limit}"))
    rows.append(row("copying", times.copying))
    rows.append(row("lock held", times.held, f"{ms(times.held_idle)} of it without a kernel"))
    return rows


def _memory(contents: Contents) -> Iterator[str]:
    peaks = {device: peak for device, peak in contents.peaks.peaks.items() if peak.bytes}
    if not peaks:
        return
    yield ""
    yield "memory at its peak"
    rows: list[Cells] = []
    for device, peak in sorted(peaks.items()):
        described = contents.describe(device)
        limit = f" of {format_size(described.capacity)}" if described is not None and described.capacity else ""
        at = f"at {ms(max(0, peak.time_ns - contents.start_ns))}"
        parts = sorted(peak.by_purpose.items(), key=lambda item: -item[1])
        made_of = ", ".join(f"{purpose} {format_size(nbytes)}" for purpose, nbytes in parts)
        rows.append((device, f"{format_size(peak.bytes)}{limit}", at, made_of))
    yield from _table(rows, left=4)


def _findings(findings: list[Finding]) -> Iterator[str]:
    yield ""
    if not findings:
        yield "findings: none"
        return
    yield "findings"
    for number, finding in enumerate(findings, 1):
        yield f"  {number}. {finding.device}: {finding.title}"
        yield from (f"     {line}" for line in finding.evidence)
        yield from (f"     → {remedy_words(remedy)}" for remedy in finding.remedies)


# ---- two recordings ----


def _compared(a: Contents, first: Summary, b: Contents, second: Summary) -> list[Cells]:
    rows: list[Cells] = [("", "A", "B", "B − A")]

    def shares(name: str, x: float, y: float) -> None:
        if x or y:
            rows.append((name, percent(x), percent(y), f"{100 * (y - x):+.1f} points"))

    def times(name: str, x: float | None, y: float | None) -> None:
        rows.append((name, _or_dash(x), _or_dash(y), _ratio(x, y)))

    count = [one.partitions[summaries.WHOLE].count if one.partitions else 0 for one in (first, second)]
    rows.append(("partitions", *(f"{n:,}" for n in count), ""))
    times("time with work a partition", first.partition_ns, second.partition_ns)
    shares("kernels ran", first.busy_share, second.busy_share)
    shares("  of the time with work", first.busy_share_with_work, second.busy_share_with_work)
    shares("idle", *(one.shares.idle / max(1, one.shares.window) for one in (first, second)))
    idle = [first.idle_by_cause(), second.idle_by_cause()]
    causes = dict.fromkeys([*idle[0], *idle[1]])
    for cause in sorted(causes, key=lambda cause: -max(one.get(cause, 0.0) for one in idle)):
        shares(f"  {'between kernels' if cause == 'short' else cause}", *(one.get(cause, 0.0) for one in idle))
    shares("lock held", *(one.shares.held / max(1, one.shares.window) for one in (first, second)))
    shares("  without a kernel", *(one.shares.held_idle / max(1, one.shares.window) for one in (first, second)))
    parts = dict.fromkeys([*first.partitions, *second.partitions])
    if parts:
        rows.append(("of a partition, median", "", "", ""))
    for part in parts:
        medians = [one.partitions[part].median if part in one.partitions else None for one in (first, second)]
        times(f"  {part}", *medians)
    rows += _compared_transfers(first, second)
    peaks = [c.peaks.peaks[s.device].bytes if s.device in c.peaks.peaks else 0 for c, s in ((a, first), (b, second))]
    if any(peaks):
        rows.append(("memory at its peak", *map(format_size, peaks), _ratio(*map(float, peaks))))
    return rows


def _compared_transfers(first: Summary, second: Summary) -> Iterator[Cells]:
    by_key = [{(row.kind, row.pinned): row for row in one.transfers} for one in (first, second)]
    for key in dict.fromkeys([*by_key[0], *by_key[1]]):
        speeds = [one[key].rate if key in one else None for one in by_key]
        kind, pinned = key
        name = f"rate of {kind_words(kind)}{f', {_MEMORY[pinned]}' if pinned is not None else ''}"
        yield (name, *(("–" if speed is None else rate(speed)) for speed in speeds), _ratio(*speeds))


def _ratio(a: float | None, b: float | None) -> str:
    """Nothing where one is next to nothing: such a factor says how small that was, not how the other one grew."""
    return f"× {b / a:.2f}" if a and b and 1 / _MOST <= b / a <= _MOST else ""


def _or_dash(value: float | None) -> str:
    return "–" if value is None else ms(value)


def _after(contents: Contents, time_ns: int) -> float:
    return (time_ns - contents.start_ns) / 1e9


def _table(rows: Sequence[Cells], left: int = 1, *, note: bool = False) -> Iterator[str]:
    """Rows of cells as lines: the first ``left`` columns to the left, as is the last one with ``note``."""
    columns = max(map(len, rows), default=0)
    padded = [(*row, *[""] * (columns - len(row))) for row in rows]
    widths = [max(len(row[i]) for row in padded) for i in range(columns)]
    to_left = [i < left or (note and i == columns - 1) for i in range(columns)]
    for row in padded:
        cells = [
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(row, widths, to_left, strict=True)
        ]
        yield f"  {'  '.join(cells)}".rstrip()
