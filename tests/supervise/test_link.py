"""Messages and descriptors arrive whole and in order, and neither side ever waits for the other."""

import os
from typing import TYPE_CHECKING

from quell.supervise.keeper.link import pair

if TYPE_CHECKING:
    from quell.supervise.keeper.link import Message


def test_messages_of_any_size_arrive_in_order_with_their_descriptors() -> None:
    one, other = pair()
    read, write = os.pipe()
    big = {"op": "big", "text": "x" * 3_000_000, "odd": "\udcff"}
    one.send({"op": "first"}, [read])
    one.send(big)
    one.send({"op": "last"}, [write, write])
    got: list[tuple[Message, list[int]]] = []
    while len(got) < 3:
        one.flush()
        got += other.receive()
    assert [message["op"] for message, _ in got] == ["first", "big", "last"]
    assert got[1][0] == big
    assert [len(fds) for _, fds in got] == [1, 0, 2]
    for fd in (read, write, *(fd for _, fds in got for fd in fds)):
        os.close(fd)
    one.close()
    other.close()


def test_a_side_that_does_not_read_holds_nobody_up() -> None:
    """H39: sending to a stalled reader only queues."""
    one, other = pair()
    for _ in range(100):
        one.send({"text": "x" * 100_000})
    assert one.wants_write and not one.closed
    one.drain(0.05)
    assert one.wants_write
    one.close()
    other.close()


def test_a_lost_other_side_is_noticed_not_raised() -> None:
    one, other = pair()
    other.close()
    one.send({"op": "x"})
    assert one.receive() == [] and one.closed
    one.close()
