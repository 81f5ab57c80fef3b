"""How much memory there is: for the CPU device (``cpu.arena``, or by default what the machine or the container allows,
minus a margin), and for what the host prepares (``memory.total_budget``)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from cuzk_engine.errors import SettingError

ENVIRONMENT: Final = "CUZK_CPU_ARENA"
MARGIN_SHARE: Final = 10  # a tenth of the limit is left to the rest, but at least
MARGIN_MIN: Final = 256 << 20
SMALLEST: Final = 1 << 20
DEFAULT_MARGIN: Final = "5GiB"  # of memory.safety_margin
_UNLIMITED: Final = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned int64


@dataclass(frozen=True, slots=True)
class Capacity:
    """``nbytes`` and where the number comes from: "cpu.arena", "CUZK_CPU_ARENA", "cgroup limit", "memory of the
    machine"."""

    nbytes: int
    source: str


def resolve(setting: str = "auto", environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Capacity:
    """The capacity for a value of the setting ``cpu.arena``; $CUZK_CPU_ARENA goes before it. ``root`` is for tests.

    Raises SettingError for anything but "auto" or a size of at least 1 MiB.
    """
    for name, text in ((ENVIRONMENT, environ.get(ENVIRONMENT)), ("cpu.arena", setting)):
        if text is None or (text == "auto" and name == ENVIRONMENT):
            continue
        if text == "auto":
            break
        from cuzk_engine.units import parse_size

        try:
            nbytes = parse_size(text)
        except ValueError as error:
            raise SettingError(f'{name} is "{text}": {error}, or "auto"') from error
        if nbytes < SMALLEST:
            raise SettingError(f'{name} is "{text}", expected "auto" or a size of at least 1MiB')
        return Capacity(nbytes, name)
    return _minus_margin(machine_limit(root))


def host_budget(
    total: str = "auto", margin: str = DEFAULT_MARGIN, processes: int = 1, root: Path = Path("/")
) -> Capacity:
    """One device process's share of the host's memory: ``memory.total_budget``, by default the limit minus
    ``memory.safety_margin`` (half of the limit at most), divided by the number of ``processes``.

    More than the limit is never promised. Raises SettingError where less than 1 MiB is left for a process.
    """
    from cuzk_engine.units import parse_size

    limit = machine_limit(root)
    if total == "auto":
        whole = Capacity(limit.nbytes - min(parse_size(margin), limit.nbytes // 2), limit.source)
    else:
        given = Capacity(parse_size(total), "memory.total_budget")
        whole = given if given.nbytes <= limit.nbytes else limit
    share = whole.nbytes // max(1, processes)
    if share < SMALLEST:
        raise SettingError(
            f'memory.total_budget is "{total}": {share:,} bytes for each of {processes} device processes, '
            'expected at least 1MiB for each, or "auto"'
        )
    return Capacity(share, whole.source)


def check_budget(total: str, processes: int = 1, root: Path = Path("/")) -> None:
    """Raises SettingError for a value of ``memory.total_budget`` that ``host_budget`` would cut or refuse here: more
    than there is, or too little for each of the processes."""
    from cuzk_engine.units import format_size, parse_size

    if total == "auto":
        return
    limit = machine_limit(root)
    if parse_size(total) > limit.nbytes:
        raise SettingError(
            f'memory.total_budget is "{total}": there are {format_size(limit.nbytes)} ({limit.source}), '
            f'expected "auto" or at most "{limit.nbytes >> 20}MiB"'
        )
    host_budget(total, processes=processes, root=root)


def machine_limit(root: Path = Path("/")) -> Capacity:
    """The smaller of the machine's memory and the tightest cgroup limit (v1 or v2) that this process is under."""
    machine = Capacity(_total_memory(root), "memory of the machine")
    limits = [limit for limit in _cgroup_limits(root) if 0 < limit < _UNLIMITED]
    if limits and min(limits) < machine.nbytes:
        return Capacity(min(limits), "cgroup limit")
    return machine


def _minus_margin(limit: Capacity) -> Capacity:
    margin = min(max(MARGIN_MIN, limit.nbytes // MARGIN_SHARE), limit.nbytes // 2)
    return Capacity(limit.nbytes - margin, limit.source)


def _total_memory(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise SettingError("/proc/meminfo names no MemTotal: set cpu.arena to a size")


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Limits of this process's groups and of all groups above them, as far as they are visible."""
    for mount, group, file in _hierarchies(root):
        folder = PurePosixPath(group)
        for inside in (folder, *folder.parents):
            # In a container the group's path may be the host's, with the mount showing the container's own group.
            try:
                text = (mount / str(inside).lstrip("/") / file).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                continue
            if text.isdecimal():
                yield int(text)


def _hierarchies(root: Path) -> Iterator[tuple[Path, str, str]]:
    """(mount point, group of this process, name of the limit's file), of cgroup v2 and of v1's memory controller."""
    groups: dict[str, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            groups["v2"] = path
        elif "memory" in controllers.split(","):
            groups["v1"] = path
    for line in _lines(root / "proc/self/mountinfo"):
        fields = line.split()
        if "-" not in fields:
            continue
        after = fields[fields.index("-") + 1 :]
        mount = root / fields[4].lstrip("/")
        if after[0] == "cgroup2" and "v2" in groups:
            yield mount, groups["v2"], "memory.max"
        elif after[0] == "cgroup" and "memory" in after[-1].split(",") and "v1" in groups:
            yield mount, groups["v1"], "memory.limit_in_bytes"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
