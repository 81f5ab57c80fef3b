"""Files that callers name: which may be opened, what a key and a witness must look like before a job is accepted,
and the spool for witnesses that come by stream.

Only headers and sizes are looked at here, in the supervisor; the device process checks everything else when it
opens the files itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cuzk_engine
from cuzk_engine import paths
from cuzk_engine.client.types import CircuitInfo
from cuzk_engine.curves import curve_title
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.container import Container
from cuzk_engine.formats.params import structure_of
from cuzk_engine.formats.source import FileIdentity, SourceFile, open_regular, read_at
from cuzk_engine.formats.wtns import WTNS_SPEC, read_header
from cuzk_engine.formats.zkey import ZKEY_SPEC, ZKey
from cuzk_engine.paths import config_dir, is_utf8
from cuzk_engine.units import format_count

_HASH_CHUNK: Final = 1 << 20
_ID_DIGITS: Final = 16


class AllowedPaths:
    """The folders from which files may be opened by path: ``folders``, or the home folder, srs.param_cache and the
    project's own demo circuit, which may be installed anywhere.
    """

    def __init__(self, folders: Iterable[str], param_cache: str, configuration: Path | None = None) -> None:
        self._configuration = configuration
        chosen = list(folders) or ["~", param_cache, *_demo_folders()]
        expanded = [os.path.expanduser(folder) for folder in chosen if folder]
        self._folders = [os.path.realpath(folder) for folder in expanded if not folder.startswith("~")]

    def check(self, path: str) -> str:
        """The path without links. Raises RefusedError for one that is not absolute or leads elsewhere; the file
        need not exist.
        """
        if not os.path.isabs(path) or "\0" in path:
            raise RefusedError(
                Reason.INVALID_ARGUMENT, f"{path!r} is no absolute path; the daemon has another working folder"
            )
        resolved = os.path.realpath(path)
        if not is_utf8(resolved):  # it could be opened, but no message could carry it
            raise RefusedError(Reason.INVALID_ARGUMENT, f"{path}: leads to {resolved!r}, whose name is not UTF-8")
        if not any(resolved == folder or resolved.startswith(folder.rstrip("/") + "/") for folder in self._folders):
            allowed, file = ", ".join(self._folders), self._configuration or config_dir() / "cuzk.toml"
            raise RefusedError(
                Reason.PERMISSION_DENIED,
                f"{path}: lies outside the folders that may be read ({allowed}): "
                f"add its folder to daemon.allowed_paths in {file} and restart the engine",
            )
        return resolved


def _demo_folders() -> list[str]:
    """``assets/demo`` beside the package in a checkout, inside it when installed; those that are there."""
    package = Path(cuzk_engine.__file__).resolve().parent
    places = (package.parent / "assets" / "demo", package / "_assets" / "demo")
    return [str(place) for place in places if place.is_dir()]


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What a key's header says, and the state of its file."""

    curve: str  # as snarkjs calls it
    n_vars: int
    n_public: int
    domain_size: int
    nbytes: int
    identity: tuple[int, ...]


def read_key(path: str) -> KeyFacts:
    """Checks header and sizes. Raises FormatError."""
    source = SourceFile.open(path)
    if source.data[:4].tobytes() != ZKEY_SPEC.magic and structure_of(source) == "params":
        raise FormatError(
            path,
            "this is a bellperson key (params), which the engine does not take: it proves with zkey files only; "
            "`cuzk prove` without --daemon takes it, with its --circuit",
        )
    key = ZKey.from_source(source)
    return KeyFacts(
        curve=key.curve.snarkjs_name,
        n_vars=key.n_vars,
        n_public=key.n_public,
        domain_size=key.domain_size,
        nbytes=key.file_bytes,
        identity=tuple(key.identity) if key.identity else (),
    )


def file_identity(path: str) -> tuple[int, ...]:
    """The state of a file, as in KeyFacts; () where there is none."""
    identity = FileIdentity.of(path)
    return tuple(identity) if identity else ()


def circuit_from(path: str, name: str, facts: KeyFacts, content: str) -> CircuitInfo:
    return CircuitInfo(
        id=circuit_id(content),
        name=name or default_name(path),
        key_path=path,
        curve=facts.curve,
        n_vars=facts.n_vars,
        n_public=facts.n_public,
        domain_size=facts.domain_size,
        key_bytes=facts.nbytes,
        last_used_unix_ns=0,
    )


def circuit_id(content: str) -> str:
    """Of a key's ``content_hash``."""
    return content[:_ID_DIGITS]


def default_name(path: str) -> str:
    """The file's name; that of its folder where every key is called circuit.zkey."""
    stem = Path(path).stem
    return Path(path).parent.name if stem in ("circuit", "circuit_final", "circuit_0000") else stem


def content_hash(path: str, stop: threading.Event | None = None) -> str:
    """BLAKE2b-256 of a file. It is read, not mapped: a file that is cut short meanwhile must not end the supervisor.

    Raises FormatError, and RefusedError once ``stop`` is set: the end of the daemon does not wait for a large file.
    """
    digest = hashlib.blake2b(digest_size=32)
    with open_regular(path) as (descriptor, _):
        offset = 0
        while data := read_at(descriptor, _HASH_CHUNK, offset):
            if stop is not None and stop.is_set():
                raise RefusedError(Reason.FAILED_PRECONDITION, "the engine is stopping")
            digest.update(data)
            offset += len(data)
    return digest.hexdigest()


def check_witness_file(path: str, key_path: str, curve: str, n_vars: int, shown: str = "") -> None:
    """Header, sizes, prime and number of values against a circuit's. ``shown`` stands for the path in messages.

    Raises FormatError. No value of the witness is looked at.
    """
    try:
        container = Container.parse(SourceFile.open(path), WTNS_SPEC)
        found, count = read_header(container)
        container.check_size(2, count * found.n8r, f"{format_count(count, 'value')} of {found.n8r} bytes")
    except FormatError as error:
        raise FormatError(shown or path, error.reason) from error
    if found.snarkjs_name != curve:
        raise FormatError(
            shown or path,
            f"witness is for {found.title}, the key {key_path} for {curve_title(curve)}: they must be of one circuit",
        )
    if count != n_vars:
        raise FormatError(
            shown or path,
            f"witness has {format_count(count, 'value')}, the circuit of {key_path} has {n_vars:,} signals: "
            "they must be of one circuit",
        )


def count_params(folder: str) -> int | None:
    """How many .params files lie in a folder; None where it cannot be read."""
    try:
        return sum(entry.name.endswith(".params") for entry in os.scandir(folder))
    except OSError:
        return None


class Spool:
    """Witnesses that came by stream, one file each, mode 0600, in a folder of mode 0700; removed after their job.

    Their names are no Paths: those would be interned, each in a place of its own in a table that only grows."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = paths.runtime_dir() / "spool" if folder is None else folder
        self._prefix = os.path.join(self._folder, "")

    @property
    def folder(self) -> Path:
        return self._folder

    def create(self, job_id: str) -> tuple[str, int]:
        """Path and descriptor of a new file. Raises CuzkError, and OSError when the disk is full."""
        paths.ensure_private(self._folder)
        path = f"{self._prefix}{job_id}.wtns"
        return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def remove(self, path: str) -> None:
        """Removes a file of the spool, and nothing else; one that cannot be removed now is removed by ``clean``."""
        if os.path.join(os.path.dirname(path), "") == self._prefix:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def clean(self, keep: Collection[str]) -> None:
        """Removes what no job needs, as after a crash."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if str(path) not in keep:
                    path.unlink(missing_ok=True)
