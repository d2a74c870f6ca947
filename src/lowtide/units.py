"""Bytes: parse what people write ("4 GiB", "900MB", "80%") and print what people read."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NewType

from lowtide.errors import BadUse

Bytes = NewType("Bytes", int)

_BINARY = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_NUMBER = r"\s*([0-9]{0,18}\.?[0-9]{1,18})\s*"
_SIZE = re.compile(_NUMBER + r"([KMGTP]?)(i?)(B?)\s*", re.IGNORECASE | re.ASCII)
_PERCENT = re.compile(_NUMBER + r"%\s*")


def parse_size(text: str | int, of: int | None = None) -> Bytes:
    """Bytes meant by `text`: an integer, "4 GiB", "900MB" (10^6), "512M" (2^20, as in Docker), or "80%" of `of`."""
    if isinstance(text, int) and not isinstance(text, bool):
        return _positive(text, text)
    if not isinstance(text, str):
        raise _not_a_size(text, of)
    if percent := _PERCENT.fullmatch(text):
        if of is None:
            raise BadUse(f"size {text!r}: a percentage means nothing here; give bytes such as 4GiB")
        return _positive(int(of * Fraction(percent[1]) / 100), text)
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _not_a_size(text, of)
    number, prefix, binary, unit = match.groups()
    decimal = bool(unit) and not binary and bool(prefix)
    scale = (1000 if decimal else 1024) ** _BINARY[prefix.upper()]
    return _positive(int(Fraction(number) * scale), text)


def is_share(text: object) -> bool:
    """Whether a size is given as a part of something: "80%"."""
    return isinstance(text, str) and text.strip().endswith("%")


def format_size(size: float) -> str:
    """`size` as people read it: 4 significant digits at most, binary units."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            digits = 0 if unit == "B" or size >= 999.95 else 1 if size >= 99.995 else 2
            return f"{sign}{size:.{digits}f} {unit}"
        size /= 1024
    raise AssertionError("unreachable: TiB always returns")


def _positive(size: int, text: object) -> Bytes:
    if size <= 0:
        raise BadUse(f"size {text!r}: expected more than zero bytes")
    return Bytes(size)


def _not_a_size(text: object, of: int | None) -> BadUse:
    examples = "4GiB, 900MB or 1073741824" if of is None else "4GiB, 900MB, 1073741824 or 80%"
    return BadUse(f"size {text!r}: expected a number with an optional unit, such as {examples}")
