"""What may come in from outside by mistake: as bytes, as text, as one wrong place in a right document.

A document is mangled at one place: there a value is replaced by an odd one, a key is renamed, doubled or gone; or its
bytes are cut short, in another encoding, or have a bit turned. So what comes out is near enough to the real thing to
get past the first look, which bytes at random seldom do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

DEEP = 100_000
"""Brackets one in another; Python's parsers give up at about a thousand."""

ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "a\nb",
    "\x1b[31m",
    "../../etc/passwd",
    "..",
    ".",
    "/",
    "a/b",
    "a//b",
    "%2e%2e%2f",
    "\ud800",
    "\udcff",
    "ünïcode-топик-話題",
    "\u202ename",
    "\u0664\u0662",
    "\uff11",
    "x" * 300,
    "x" * 70 + ".y",
    "true",
    "null",
    "NaN",
    "-1",
    "007",
    "1e5",
    "9" * 25,
    "9" * 5000,
    "{}",
    "[]",
    "$(id)",
    "{{ x }}",
    "'; DROP",
    "a,b",
    "a;b",
    "a=b",
    "a@b:1",
    "http://h:1/",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-14:00",
    "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00+99:00",
)
"""Text that has broken programs before."""

HUGE_TEXT = "y" * 200_000

ODD_NUMBERS: tuple[int | float, ...] = (
    0,
    -1,
    -0.0,
    0.5,
    1.5,
    2**31 - 1,
    2**31,
    2**63,
    10**30,
    -(10**30),
    1e308,
    5e-324,
    float("inf"),
    float("-inf"),
    float("nan"),
)

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    [-1],
    [0, 0],
    [True],
    [1.0],
    ["0"],
    {"": {}},
    {"a": None},
    {"0": "a"},
    {"a": [0]},
    {"../x": [0]},
)

odd_texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=20))
odd_values = st.one_of(
    st.sampled_from((*ODD_TEXTS, *ODD_NUMBERS, *ODD_VALUES, HUGE_TEXT)),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
)
"""Any JSON value, mostly of the kinds that hurt."""

_TOKENS = (
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 5000,
    "[" * DEEP,
    '{"a":' * DEEP,
    '"\\ud800"',
    "0x10",
    "'a'",
    "",
)
"""What stands for a value, but is no JSON, or such that a parser may choke on it."""
_RAW = (
    *(
        text.encode()
        for text in (
            *(
                "{",
                "}",
                "[",
                "null",
                "true",
                "0",
                "-0",
                '""',
                "{}",
                "[]",
                " ",
                "\n",
                "\x00",
                "rubbish",
                "NaN",
            ),
            *("9" * 5000, "[" * DEEP, '{"a":' * DEEP, "[" * 900 + "]" * 900, HUGE_TEXT, "<html></html>"),
        )
    ),
    *(b"\xff\xfe{\x00}\x00", b"\x80\x81", b"\xc3(", b"\xed\xa0\x80", b"\x1f\x8b\x08\x00", b"\xef\xbb\xbf{}"),
)

Path = tuple[str | int, ...]


def places(document: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in a document, the whole of it first."""
    yield path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, (*path, key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from places(value, (*path, number))


def changed(document: Any, path: Path, value: Any) -> Any:
    """The document with another value at one place."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


def without(document: Any, path: Path) -> Any:
    """The document without one place (not the whole of it)."""
    parent = document
    for part in path[:-1]:
        parent = parent[part]
    rest = dict(parent) if isinstance(parent, dict) else list(parent)
    del rest[path[-1]]
    return changed(document, path[:-1], rest)


def renamed(document: Any, path: Path, name: str) -> Any:
    """The document with another name for one key."""
    parent = document
    for part in path[:-1]:
        parent = parent[part]
    return changed(document, path[:-1], {name if key == path[-1] else key: v for key, v in parent.items()})


@st.composite
def mangled_values(draw: st.DrawFn, document: Any) -> Any:
    """A right document with one place wrong, still JSON-able (with NaN and infinity, as Python writes them)."""
    path = draw(st.sampled_from(list(places(document))))
    how = draw(st.sampled_from(("value", "value", "value", "name", "gone", "more")))
    if how == "gone" and path:
        return without(document, path)
    if how == "name" and path and isinstance(path[-1], str):
        return renamed(document, path, draw(odd_texts))
    if how == "more" and isinstance(document, dict):
        return {**document, draw(odd_texts): draw(odd_values)}
    return changed(document, path, draw(odd_values))


@st.composite
def mangled(draw: st.DrawFn, document: Any) -> bytes:  # noqa: PLR0911  one for each kind
    """The bytes of a right document, with something wrong."""
    how = draw(
        st.sampled_from(("value", "value", "value", "value", "token", "bytes", "raw", "any", "encoding"))
    )
    if how == "raw":
        return draw(st.sampled_from(_RAW))
    if how == "any":
        return draw(st.binary(max_size=60))
    if how == "value":
        return json.dumps(draw(mangled_values(document))).encode()
    if how == "token":
        path = draw(st.sampled_from(list(places(document))))
        text = json.dumps(changed(document, path, "@@"))
        return text.replace('"@@"', draw(st.sampled_from(_TOKENS)), 1).encode()
    data = json.dumps(document).encode()
    if how == "encoding":
        return data.decode().encode(
            draw(st.sampled_from(("utf-16", "utf-32-le", "utf-8-sig", "utf-7", "cp037")))
        )
    at = draw(st.integers(0, len(data) - 1))
    what = draw(st.sampled_from(("cut", "bit", "in", "twice")))
    if what == "cut":
        return data[:at]
    if what == "in":
        return data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at:]
    if what == "twice":
        return data + data[at:]
    return data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
