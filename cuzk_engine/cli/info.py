"""``cuzk info``: what a file holds, and for a proving key what a proof with it needs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli import configured
from cuzk_engine.cli.console import say, say_json
from cuzk_engine.errors import SettingError

if TYPE_CHECKING:
    from cuzk_engine.client.recording import Recording
    from cuzk_engine.devices.base import Device
    from cuzk_engine.formats.identify import FileDescription
    from cuzk_engine.runner import PipelineSettings

    Subparsers = argparse._SubParsersAction[Any]


_ROOMS: Final = (("device_peak", "device_capacity"), ("host_vectors", "host_capacity"))


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "info",
        help="say what a file holds",
        description="Says what a file holds. Of witnesses, proofs and public signals no value is shown.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    configured.add_option(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.formats.identify import FileKind, describe

    if _is_recording(args.file):
        return _show_recording(args)
    description = describe(args.file)
    memory, unknown = None, ""
    if description.kind in (FileKind.ZKEY, FileKind.PARAMS):
        settings = configured.load(args)
        wanted = configured.pipeline_settings(settings)
        try:
            opened = configured.open_as_engine(settings)
        except SettingError as error:  # of another machine's devices; what the file holds can be said all the same
            unknown = str(error)
        else:
            with opened:
                memory = estimate(args.file, opened.device, wanted, bellperson=description.kind is FileKind.PARAMS)
    if args.json:
        say_json({"path": description.path, **description.fields, **({"memory": memory} if memory else {})})
    else:
        say("\n".join(_lines(description, memory, unknown)))
    return 1 if description.kind is FileKind.UNKNOWN else 0


def _is_recording(path: Path) -> bool:
    from cuzk_engine.recording.reader import is_recording

    try:
        if not path.is_file():  # reading a pipe would take what comes next from it
            return False
        with path.open("rb") as file:
            return is_recording(file.read(100))
    except OSError:
        return False  # whoever opens it next says why


def _show_recording(args: argparse.Namespace) -> int:
    from cuzk_engine.client.recording import Recording

    with Recording.open(args.file) as recording:
        facts = recording_facts(recording)
    if args.json:
        say_json({"path": str(args.file), **facts})
        return 0
    rows = []
    for name, value in facts.items():
        if value is not None:
            shown = f"{value:,}" if isinstance(value, int) else ", ".join(value) if isinstance(value, list) else value
            rows.append(("incomplete" if name == "damage" else name.replace("_", " "), str(shown)))
    width = max(len(name) for name, _ in rows)
    say("\n".join([str(args.file), *(f"  {name:<{width}}  {value}" for name, value in rows)]))
    return 0


def recording_facts(recording: Recording) -> dict[str, Any]:
    """What a recording says of itself, for people and as JSON."""
    from datetime import datetime

    info, prefix = recording.info, f"{recording.info.path}: "
    recording.look_through()
    start = datetime.fromtimestamp((info.start_ns + info.wall_offset_ns) / 1e9).astimezone()
    return {
        "kind": "recording",
        "bytes": Path(info.path).stat().st_size,
        "recorded": start.isoformat(" ", "seconds"),
        "seconds": round((info.end_ns - info.start_ns) / 1e9, 3),
        "engine": f"cuzk {info.identity.version}, build {info.identity.build or 'unknown'}",
        "devices": [f"{device.id} ({device.name})" for device in info.identity.devices],
        "events": info.events,
        "events_lost": info.lost,
        "dropped": "the oldest part, for the size limit" if info.dropped_until_ns is not None else None,
        "damage": recording.damage.removeprefix(prefix) if recording.damage else None,
    }


def estimate(
    key: Path, device: Device, settings: PipelineSettings | None = None, *, bellperson: bool = False
) -> dict[str, Any]:
    """Bytes that one proof with the key takes: on the device at its peak, and of the host beside it, without the
    constraint system that a bellperson key needs."""
    from cuzk_engine.formats.params import Params
    from cuzk_engine.formats.zkey import ZKey
    from cuzk_engine.groth16.plan import CircuitSizes
    from cuzk_engine.params_keys import ParamsSizes
    from cuzk_engine.runner import PipelineSettings, plan_for

    opened = Params.open(key) if bellperson else ZKey.open(key)
    sizes = ParamsSizes.of_key(opened) if isinstance(opened, Params) else CircuitSizes.of(opened)
    plan = plan_for(device, sizes, settings or PipelineSettings())
    info, host = device.info, device.host.memory().capacity
    return {
        "device": info.id,
        "device_peak": plan.peak,
        "by_purpose": {purpose.value: nbytes for purpose, nbytes in plan.by_purpose.items()},
        "host_vectors": plan.host_bytes,
        "mapped_key": opened.file_bytes,
        "device_capacity": info.capacity,
        "capacity_source": info.capacity_source,
        "host_capacity": host,
        "fits": plan.peak <= info.capacity and plan.host_bytes <= host,
    }


def _lines(description: FileDescription, memory: dict[str, Any] | None, unknown: str) -> list[str]:
    from cuzk_engine.curves import curve_title
    from cuzk_engine.units import format_size

    rows: list[tuple[str, str]] = []
    sections: list[dict[str, Any]] = []
    for name, value in description.fields.items():
        if name == "sections":
            sections = value
        elif value is not None:
            shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
            shown = curve_title(shown) if name == "curve" else shown
            rows.append((name.replace("_", " "), shown))
    if memory is not None:
        purposes = ", ".join(f"{name} {format_size(nbytes)}" for name, nbytes in memory["by_purpose"].items())
        fits, room = ("fits" if memory[need] <= memory[there] else "does not fit" for need, there in _ROOMS)
        capacity = f"{format_size(memory['device_capacity'])} ({memory['capacity_source']})"
        rows.append(("memory of a proof", f"{format_size(memory['device_peak'])} on {memory['device']}: {purposes}"))
        rows.append(("", f"{fits} into {capacity}"))
        host = f"{format_size(memory['host_vectors'])} of vectors, {format_size(memory['mapped_key'])} of mapped key"
        rows.append(("beside it on the host", host))
        rows.append(("", f"{room} into {format_size(memory['host_capacity'])} of the host's memory"))
    if unknown:
        rows.append(("memory of a proof", f"not known: {unknown}"))
    width = max(len(name) for name, _ in rows)
    lines = [description.path, *(f"  {name:<{width}}  {value}" for name, value in rows)]
    if sections:
        lines.append("  sections")
    for section in sections:
        name = section["name"] or "unknown"
        size, offset = f"{section['bytes']:>15,} bytes", f"at {section['offset']:,}"
        lines.append(f"    {section['type']:>3}  {name:<24}  {size}  {offset}")
    return lines
