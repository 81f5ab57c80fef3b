import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.units import TooLargeError, format_count, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("0", 0), ("1B", 1), ("1.5TiB", 3 << 39), ("200 GiB", 200 << 30), ("0.5KiB", 512), ("5GiB", 5 << 30)],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("2h", 7200), ("90s", 90), ("500ms", 0.5), ("7d", 604800), ("1.5m", 90)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds * 10**9


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "200 gib",
        "1.5TB",
        "5",
        "-1GiB",
        "1GiB ",
        " 1GiB",
        "auto",
        "1e3B",
        "GiB",
        "1..5GiB",
        "1 2GiB",
        "٣GiB",
        "9" * 30 + "B",
        "99999999TiB",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|larger"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "2H", "-2h", "2", "2 hours", "1h30m", "inf s", "999999999d"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|larger"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["106752d", "999999999d", "9" * 40 + "ms"])
def test_a_duration_that_is_too_large_is_said_to_be(text: str) -> None:
    assert parse_duration("106751d") < 1 << 63
    with pytest.raises(TooLargeError, match=r"^is too large: expected at most 106751d$"):
        parse_duration(text)


@given(st.integers(0, 2**53))
def test_bytes_are_exact(nbytes: int) -> None:
    assert parse_size(f"{nbytes}B") == nbytes


@given(st.text())
def test_any_text_gives_a_number_or_a_value_error(text: str) -> None:
    for parse in (parse_size, parse_duration):
        try:
            assert parse(text) >= 0
        except ValueError:
            continue


def test_texts_for_people() -> None:
    assert [format_size(n) for n in (0, 1023, 1536, 1 << 30, 1000 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1 GiB",
        "1000 GiB",
    ]
    assert [format_duration(n) for n in (12_000_000, 3_400_000_000, 7200 * 10**9)] == ["12 ms", "3.4 s", "2.0 h"]


def test_one_of_a_thing_is_not_several() -> None:
    assert [format_count(number, "value") for number in (0, 1, 2, 2000)] == [
        "0 values", "1 value", "2 values", "2,000 values",
    ]  # fmt: skip
