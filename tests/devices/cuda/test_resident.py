"""What stays on a device: found again by the bytes it was made from, given up when they go or memory is short."""

from __future__ import annotations

import numpy as np

from cuzk_engine.devices.cuda.resident import Residents, source_of
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Purpose


class Block:
    purpose = Purpose.SRS

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.freed = nbytes, 0

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    def free(self) -> None:
        self.freed += 1


class Maker:
    """Makes blocks, and knows them."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def __call__(self) -> tuple[Block, str]:
        self.blocks.append(Block(100))
        return self.blocks[-1], f"value {len(self.blocks)}"


def file_bytes(n: int = 300) -> np.ndarray:
    return np.frombuffer(bytes(range(256)) * 2, np.uint8)[:n]


def test_found_again_by_any_view_of_the_same_bytes() -> None:
    residents, make, data = Residents(), Maker(), file_bytes()
    for view in (data[:90], data[0:90].reshape(3, 30)):
        with residents.use("points", view, make) as value:
            assert value == "value 1"
    with residents.use("points", data[:60], make) as value:
        assert value == "value 2"
    with residents.use("matrices", data[:90], make) as value:
        assert value == "value 3"
    assert [block.freed for block in make.blocks] == [0, 0, 0]


def test_bytes_that_may_change_are_never_kept() -> None:
    residents, make = Residents(), Maker()
    staging = np.zeros(300, np.uint8)
    hidden = staging[:90]
    hidden.flags.writeable = False
    for data in (staging, staging[:90], hidden, file_bytes(0)):
        with residents.use("points", data, make) as value:
            assert value is None
    assert source_of(hidden) is None
    assert not make.blocks


def test_goes_with_its_source() -> None:
    residents, make, data = Residents(), Maker(), file_bytes()
    with residents.use("points", data, make):
        pass
    del data
    assert residents.reclaim(1) == 100
    assert make.blocks[0].freed == 1
    other = file_bytes()
    with residents.use("points", other, make) as value:
        assert value == "value 2"


def test_gives_up_what_nobody_uses_least_recently_used_first() -> None:
    residents, make, data = Residents(), Maker(), file_bytes()
    for size in (10, 20, 30, 10):
        with residents.use("points", data[:size], make):
            pass
    with residents.use("points", data[:20], make):
        assert residents.reclaim(150) == 200
        assert [block.freed for block in make.blocks] == [1, 0, 1]
        assert residents.reclaim(1) == 0
    residents.clear()
    assert [block.freed for block in make.blocks] == [1, 1, 1]


def test_no_room() -> None:
    def make() -> tuple[Block, str]:
        raise OutOfDeviceMemoryError("cuda:0", "srs", 10, 5, 20)

    residents = Residents()
    with residents.use("points", file_bytes(), make) as value:
        assert value is None
