import socket
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tcl.measuring.channel import Channel

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.text(), JSON), max_size=5))
def test_messages_arrive_as_they_were_sent(messages: list[dict[str, Any]]) -> None:
    ours, theirs = map(Channel, socket.socketpair())
    for message in messages:
        ours.send(message)
    assert [theirs.receive() for _ in messages] == messages
    ours.close()
    assert theirs.receive() is None
    theirs.close()


def test_receive_returns_none_when_a_message_is_cut() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b'\x00\x00\x00\x09{"a"')
    ours.close()
    channel = Channel(theirs)
    assert channel.receive() is None
    channel.close()
