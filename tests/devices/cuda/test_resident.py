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


def made_meanwhile(residents: Residents, make: Maker, data: np.ndarray) -> tuple[list[object], object]:
    """What another thread gets that makes the same while this one does, and this one's own maker."""
    others: list[object] = []

    def make_after_another() -> tuple[Block, str]:
        others.append(residents.acquire("points", data, make))
        return make()

    return others, make_after_another


def test_two_that_make_the_same_use_the_first() -> None:
    residents, make, data = Residents(), Maker(), file_bytes()
    others, make_after_another = made_meanwhile(residents, make, data)
    with residents.use("points", data, make_after_another) as value:
        assert value == "value 1"
        assert [block.freed for block in make.blocks] == [0, 1]
        residents.let_go(others.pop())
        assert residents.reclaim(1) == 0
    assert residents.reclaim(1) == 100
    assert [block.freed for block in make.blocks] == [1, 1]


def test_what_is_in_use_is_not_replaced() -> None:
    """Another file's bytes may come to lie where those of one that is gone did."""
    residents, make = Residents(), Maker()
    memory = bytes(300)
    first, second = np.frombuffer(memory, np.uint8), np.frombuffer(memory, np.uint8)
    used = residents.use("points", first, make)
    assert used.__enter__() == "value 1"
    with residents.use("points", second, make) as value:
        assert value is None
    assert [block.freed for block in make.blocks] == [0, 1]
    used.__exit__()
    with residents.use("points", second, make) as value:
        assert value == "value 3"
    assert [block.freed for block in make.blocks] == [1, 1, 0]


def test_a_notice_while_others_are_purged() -> None:
    """It comes from wherever the last array of a key went, at any time, and must be heard."""

    class Watched(Residents):
        """The arrays in ``late`` go right after somebody looked whether there had been a notice since the last look."""

        def __init__(self) -> None:
            self.late: list[np.ndarray] = []
            super().__init__()

        @property
        def _some_are_gone(self) -> bool:
            if not (found := self._gone):
                self.late.clear()
            return found

        @_some_are_gone.setter
        def _some_are_gone(self, gone: bool) -> None:
            self._gone = gone

    residents, make, first, second = Watched(), Maker(), file_bytes(), file_bytes()
    for data in (first, second):
        with residents.use("points", data, make):
            pass
    residents.late.append(second)
    del data, first, second
    assert residents.purge() == 100
    residents.late.clear()
    assert residents.purge() == 100
