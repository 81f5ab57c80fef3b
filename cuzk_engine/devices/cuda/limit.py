"""A limit on how much of a card the engine uses, from the environment: so that a large card stands for a small one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from cuzk_engine.errors import SettingError
from cuzk_engine.units import parse_size

ENVIRONMENT: Final = "CUZK_CUDA_LIMIT"
SMALLEST: Final = 1 << 20


def read_limit(environ: Mapping[str, str] = os.environ) -> int | None:
    """Bytes that each card may be used for besides its context; None: all that is free. Raises SettingError."""
    text = environ.get(ENVIRONMENT)
    if text is None or text == "auto":
        return None
    try:
        nbytes = parse_size(text)
    except ValueError as error:
        raise SettingError(f'{ENVIRONMENT} is "{text}": {error}, or "auto"') from error
    if nbytes < SMALLEST:
        raise SettingError(f'{ENVIRONMENT} is "{text}", expected "auto" or a size of at least 1MiB')
    return nbytes
