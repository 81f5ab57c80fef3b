"""What benchmarks/soak.py concludes from its readings."""

from benchmarks import soak


def test_growth_and_slope_leave_the_warm_up_out() -> None:
    warm = [*range(0, 3000, 10), *[3000] * 900]
    assert soak.growth(warm) == (3000, 3000, 0.0)
    assert soak.slope(warm) == 0.0
    rising = [1000 + second for second in range(1200)]
    early, late, share = soak.growth(rising)
    assert (early, late) == (1449, 2049)
    assert share > 0.4
    assert round(soak.slope(rising)) == 60


def test_threads_and_files_that_stay_are_told() -> None:
    level, pool, leak = [12, 13] * 300, [12] * 300 + [14] * 300, list(range(600))
    assert soak.more_handles({"level": level, "pool": pool}) == []
    assert soak.more_handles({"leak": leak}) == ["leak: 299, later 590"]
