"""Sizes: what people write, and what people read."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowtide.errors import BadUse
from lowtide.units import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1073741824", 1 << 30),
        ("4GiB", 4 << 30),
        ("4 GiB", 4 << 30),
        (" 4gib ", 4 << 30),
        ("900MB", 900 * 10**6),
        ("512M", 512 << 20),
        ("512m", 512 << 20),
        ("1.5 KiB", 1536),
        (".5K", 512),
        ("2TB", 2 * 10**12),
        ("3Ti", 3 << 40),
        ("7B", 7),
        (7, 7),
    ],
)
def test_sizes_as_people_write_them(text: str | int, size: int) -> None:
    assert parse_size(text) == size


def test_a_percentage_is_of_something() -> None:
    assert parse_size("80%", of=1000) == 800
    assert parse_size(" 12.5 %", of=1 << 30) == 1 << 27
    with pytest.raises(BadUse, match="percentage"):
        parse_size("80%")
    with pytest.raises(BadUse, match="or 80%"):
        parse_size("80percent", of=1000)


@pytest.mark.parametrize(
    "text",
    ["", " ", "GiB", "four", "4 XB", "-4GiB", "4,5 GiB", "1e9", "4GiBs", "0x10", "inf", "nan", "4 G B", "4..5G",
     "4\u212aiB", "4 G\u0131B", "9" * 400, "9" * 5000 + "G", "1" * 5000 + "%", None, 4.0, True, b"4GiB", [4]],
)  # fmt: skip
def test_what_is_not_a_size_is_named_in_one_line(text: object) -> None:
    with pytest.raises(BadUse) as error:
        parse_size(text, of=1 << 30)  # type: ignore[arg-type]
    assert str(error.value).startswith("size ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["0", "0GiB", 0, -1, "0.0001", "0%", "0.4B"])
def test_nothing_is_not_a_size(text: str | int) -> None:
    with pytest.raises(BadUse, match="more than zero"):
        parse_size(text, of=1000)


@given(st.text(max_size=20))
def test_any_other_text_is_a_size_or_one_clear_error(text: str) -> None:
    try:
        assert parse_size(text, of=1 << 40) > 0
    except BadUse as error:
        assert str(error).startswith(f"size {text!r}")


@given(st.integers(1, 10**18 - 1))
@example(2**53 + 1)
def test_a_number_written_down_is_read_back(size: int) -> None:
    assert parse_size(str(size)) == size
    assert parse_size(size) == size


@given(st.integers(1, 10**6), st.sampled_from(["", "K", "M", "G", "T"]))
def test_binary_and_decimal_prefixes(number: int, prefix: str) -> None:
    power = " KMGT".index(prefix or " ")
    assert parse_size(f"{number}{prefix}iB") == parse_size(f"{number} {prefix}") == number * 1024**power
    assert parse_size(f"{number}{prefix}B") == number * 1000**power


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (102400, "100.0 KiB"),
        (1 << 20, "1.00 MiB"),
        (1000 << 20, "1000 MiB"),
        (1 << 30, "1.00 GiB"),
        (1 << 40, "1.00 TiB"),
        (5000 << 40, "5000 TiB"),
        (-1536, "-1.50 KiB"),
        (0.4, "0 B"),
    ],
)
def test_sizes_as_people_read_them(size: float, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(1, 10**15))
def test_what_is_printed_can_be_parsed_and_is_right_to_a_few_digits(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.006)


@given(st.integers(0, 1023 << 40))
def test_a_printed_size_has_at_most_four_digits(size: int) -> None:
    assert sum(character.isdigit() for character in format_size(size)) <= 4
