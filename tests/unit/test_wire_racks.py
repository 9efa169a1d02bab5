"""The racks node: what stands in it, and what is said of one that holds something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.wire import WireError, format_racks, parse_racks, racks_path

PATH = racks_path("c", "t")


def test_the_node_is_short_and_in_order() -> None:
    assert PATH == "/consumers/c/racks/t"
    assert format_racks({3: "b", 10: "a", 0: "a"}) == b'{"racks":{"a":[0,10],"b":[3]}}'
    assert parse_racks(b'{"racks": {"a": [0], "b": []}, "new": 1}', PATH) == {0: "a"}


@given(st.dictionaries(st.integers(0, 300), st.sampled_from(["a", "b", "eu-west/1c", "ä"])))
def test_racks_are_read_as_they_were_written(racks: dict[int, str]) -> None:
    assert parse_racks(format_racks(racks), PATH) == racks


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"rubbish", "the whole text"),
        (b"{}", "racks: Field required"),
        (b'{"racks": {"a": ["0"]}}', "racks.a.0"),
        (b'{"racks": {"a": [-1]}}', "racks.a.0"),
        (b'{"racks": {"a": [1], "b": [1]}}', "partition 1 is in 'a' and in 'b'"),
    ],
)
def test_malformed_racks_node_is_named_with_the_next_step(data: bytes, said: str) -> None:
    with pytest.raises(
        WireError, match=r"/consumers/c/racks/t does not tell racks: .*Delete the node"
    ) as failure:
        parse_racks(data, PATH)
    assert said in str(failure.value)
