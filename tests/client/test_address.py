import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.client.address import parse_address
from cuzk_engine.errors import CuzkError


@pytest.mark.parametrize(
    ("text", "shown", "target", "local"),
    [
        ("127.0.0.1:9820", "127.0.0.1:9820", "127.0.0.1:9820", True),
        ("localhost:1", "localhost:1", "localhost:1", True),
        ("[::1]:9820", "[::1]:9820", "[::1]:9820", True),
        ("0.0.0.0:9820", "0.0.0.0:9820", "0.0.0.0:9820", False),
        ("[::]:9820", "[::]:9820", "[::]:9820", False),
        ("prover.example:9820", "prover.example:9820", "prover.example:9820", False),
        ("http://127.0.0.1:9820/", "127.0.0.1:9820", "127.0.0.1:9820", True),
        ("unix:///run/x.sock", "unix:///run/x.sock", "unix:/run/x.sock", True),
        ("unix:/run/x.sock", "unix:///run/x.sock", "unix:/run/x.sock", True),
    ],
)
def test_forms(text: str, shown: str, target: str, local: bool) -> None:
    address = parse_address(text)
    assert (str(address), address.target, address.is_local) == (shown, target, local)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9820",
        "host",
        "host:",
        ":9820",
        "host:x",
        "host:70000",
        "host:" + "9" * 5000,
        "::1:9820",
        "unix://run/x",
        "host:-1",
        "unix:///" + "x" * 110,
        "host\udcff:9820",
        "unix:///run/\udcff",
    ],
)
def test_other_texts_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(CuzkError, match="address"):
        parse_address(text)


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        found = str(parse_address(text))
    except CuzkError as error:
        found = str(error)
    assert found
    assert "\n" not in found
