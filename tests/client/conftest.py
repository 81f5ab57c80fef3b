from pathlib import Path

import pytest

from tests.support.daemons import Witnesses


@pytest.fixture
def witnesses(tmp_path: Path) -> Witnesses:
    return Witnesses(tmp_path)
