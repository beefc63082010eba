"""Links by which answers leave are found by what they are called, however many there are."""

from __future__ import annotations

from qpidha.management.link_pair import LinkPairService
from qpidha.management.reply_link import ReplyLinks
from qpidha.management.requests import Requests
from tests.management.builders import FakeConnection, FakeLink, FakeNode, FakeTerminus, a_request


class Counted(FakeTerminus):
    """Counts how often it is asked for its address."""

    reads = 0

    def __getattribute__(self, name: str) -> object:
        if name == "address":
            Counted.reads += 1
        return super().__getattribute__(name)


def receivers(count: int, connection: FakeConnection) -> list[FakeLink]:
    found = []
    for number in range(count):
        link = FakeLink(connection, f"r{number}", "$management", sends=True)
        link.remote_target = Counted(f"a{number}")
        found.append(link)
    return found


def test_performance_8_a_receiver_is_found_and_forgotten_without_a_look_at_others() -> None:
    one, two = FakeConnection(1), FakeConnection(2)
    replies = ReplyLinks()
    links = receivers(1000, one) + receivers(1000, two)
    for link in links:
        replies.add(link)
    Counted.reads = 0
    asker = FakeLink(two, "r7", "$management")
    for number in range(1000):
        assert replies.addressed(asker, f"a{number}") is links[1000 + number]
    assert replies.paired(asker) is links[1007]
    for link in links:
        replies.remove(link)
    assert Counted.reads <= 2 * len(links)
    assert replies.paired(asker) is replies.addressed(asker, "a7") is None
    assert not replies._named and not replies._addressed


def test_of_receivers_with_one_name_or_address_the_oldest_gets_the_answers() -> None:
    connection, replies = FakeConnection(1), ReplyLinks()
    asker = FakeLink(connection, "r", "$management")
    old, new = (
        FakeLink(connection, "r", "$management", sends=True, peer_address="me") for _ in range(2)
    )
    for link in (old, new, asker):
        replies.add(link)
    assert replies.paired(asker) is replies.addressed(asker, "me") is old
    replies.remove(old)
    replies.remove(old)
    assert replies.paired(asker) is replies.addressed(asker, "me") is new


def test_each_request_finds_its_own_link_among_those_of_all_connections() -> None:
    node = FakeNode()
    service = LinkPairService(Requests(node), node)
    pairs = [
        (FakeLink(it, "pair", "/management"), FakeLink(it, "pair", "/management", sends=True))
        for it in map(FakeConnection, range(3))
    ]
    for link in (each for pair in pairs for each in pair):
        service.attached(link)
    sender, receiver = pairs[1]
    service.received(sender, a_request(subject="GET", to="/queues", reply_to="$me"))
    assert [len(back.sent) for _, back in pairs] == [0, 1, 0] and receiver.sent
