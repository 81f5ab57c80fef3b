"""Counts what is read of pages: how much of the past is read at once, however fast the machine is."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock


@dataclass
class PagesRead:
    """Bytes copied out of the pages that were mapped since it began to count."""

    bytes: int = 0


@contextmanager
def counted_pages() -> Iterator[PagesRead]:
    count = PagesRead()

    class Counted(mmap.mmap):
        def __getitem__(self, part: Any) -> Any:
            found = super().__getitem__(part)
            count.bytes += len(found)
            return found

    with mock.patch.object(mmap, "mmap", Counted):
        yield count
