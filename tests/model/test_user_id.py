"""A user-id that is taken is the one that everybody reads, whatever a message looks like."""

from __future__ import annotations

from random import Random

import proton
import pytest

from qpidha.model import message_view, sizes
from qpidha.model.encoding import decode
from qpidha.model.errors import ProtocolViolation
from qpidha.model.message_view import Misnamed, arrival_from
from tests.fidelity import raw_types as raw
from tests.model.message_reader import Belief, Malformed, sections, user_ids

NAMES = frozenset((b"", b"ann", b"ann@QPID"))
ROUNDS = 4000
PROPERTIES, MORE = 0x73, 0x74


def section(code: int, content: bytes) -> bytes:
    return raw.described(raw.small_ulong(code), content)


def properties(*fields: bytes) -> bytes:
    return section(PROPERTIES, raw.list_of(list(fields)))


BOB = properties(raw.NULL, raw.binary(b"bob"))
ANN = properties(raw.NULL, raw.binary(b"ann"))
BODY = section(0x77, raw.string("m"))


def sized(code: int, count: int, content: bytes, more: int = 0) -> bytes:
    """A list, map or array with this count, that says it is `more` bytes longer than it is."""
    if code in (0xC0, 0xC1, 0xE0):
        return bytes((code, len(content) + 1 + more, count)) + content
    return bytes((code,)) + (len(content) + 4 + more).to_bytes(4) + count.to_bytes(4) + content


def hiding(code: int) -> list[bytes]:
    """Values that end before they say: whoever counts elements finds BOB behind."""
    if code in (0xE0, 0xF0):
        return [sized(code, 0, b"\xa1" + BOB + BODY), sized(code, 1, b"\x55\x01" + BOB)]
    pair = raw.string("k") + raw.uint(1)
    return [sized(code, 0, BOB + BODY), sized(code, 2, pair + BOB), sized(code, 0, BOB)]


def attacks() -> list[bytes]:
    found = []
    for code in (0xC0, 0xD0):
        for value in hiding(code):
            in_list, in_map = raw.list_of([value]), raw.map_of([raw.string("k"), value])
            found += [
                section(0x70, value) + ANN + BODY,
                section(PROPERTIES, value),
                section(PROPERTIES, value) + BODY,
                ANN + section(0x76, value),
                ANN + section(0x76, raw.list_of([])) + section(0x76, value),
                ANN + section(0x77, value),
                ANN + section(0x77, in_list),
                ANN + section(0x77, in_map),
                ANN + section(0x77, raw.described(raw.symbol("a"), value)),
                ANN + section(MORE, in_map) + BODY,
                section(0x72, in_map) + ANN + BODY,
                properties(value, raw.binary(b"ann")) + BODY,
                properties(raw.NULL, raw.binary(b"ann"), value) + BODY,
                properties(*[raw.NULL] * 13, value) + BODY,
            ]
    for code in (0xC1, 0xD1):
        for value in hiding(code):
            found += [
                section(0x71, value) + ANN + BODY,
                section(0x72, value) + ANN + BODY,
                ANN + section(MORE, value) + BODY,
                ANN + section(0x77, value),
                ANN + BODY + section(0x78, value),
            ]
    for code in (0xE0, 0xF0):
        for value in hiding(code):
            found += [ANN + section(0x77, value), ANN + section(0x77, raw.list_of([value]))]
    # A list of properties that ends before its elements, which reach over the next section.
    short = sized(0xC0, 2, raw.string("i" * 7) + raw.binary(b"bob"), -12)
    found += [
        section(PROPERTIES, short) + BODY,
        section(PROPERTIES, sized(0xC0, 2, raw.NULL + raw.binary(b"bob"), -5)),
    ]
    found.append(section(PROPERTIES, sized(0xC0, 1, raw.NULL + raw.binary(b"bob"))) + BODY)
    found.append(section(PROPERTIES, sized(0xC0, 0, raw.NULL + raw.binary(b"bob"))) + BODY)
    # Elements that end before the list does, though it has as many as it says.
    found.append(section(PROPERTIES, sized(0xC0, 2, raw.NULL + raw.NULL + BOB)) + BODY)
    found.append(section(PROPERTIES, sized(0xC0, 10, raw.NULL * 10 + BOB)) + BODY)
    # Out of order, twice, or of another type.
    found += [BODY + BOB, ANN + BOB + BODY, ANN + BODY + BOB, BODY + section(MORE, b"\xc1\x01\0")]
    found += [ANN + section(MORE, raw.list_of([])) + BOB + BODY]
    return found


@pytest.mark.parametrize("payload", attacks())
def test_a_message_that_not_everybody_reads_in_the_same_way_is_refused(payload: bytes) -> None:
    with pytest.raises(Malformed):
        sections(payload)
    with pytest.raises(ProtocolViolation):
        arrival_from(NAMES, payload, 1)


def test_some_reader_finds_another_name_in_most_of_them() -> None:
    """Else they would be no attacks."""
    found = [
        [user_ids(payload, belief) for belief in (Belief.SIZE, Belief.ELEMENTS)]
        for payload in attacks()
    ]
    forged = [one for one in found if any(name != b"ann" for names in one for name in names)]
    assert len(forged) > len(found) * 0.95


OTHERS = (
    raw.string("ann"),
    raw.symbol("ann"),
    raw.list_of([raw.binary(b"ann")]),
    raw.described(raw.small_ulong(7), raw.binary(b"ann")),
    raw.array_of(b"\xa0", [b"\x03ann"]),
    raw.binary(b"bob"),
    raw.binary(b"bob", wide=True),
    b"\x44",
    b"\xe0\x02\x00\x40",
)


@pytest.mark.parametrize("user_id", OTHERS)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", [raw.small_ulong(PROPERTIES), raw.symbol("amqp:properties:list")])
def test_a_user_id_that_is_no_name_of_the_sender_is_refused(
    user_id: bytes, wide: bool, name: bytes
) -> None:
    for fields in ([raw.NULL, user_id], [raw.string("m"), user_id, *[raw.NULL] * 8]):
        for before in (b"", section(0x70, b"\x45"), section(0x72, b"\xc1\x01\x00")):
            forged = before + raw.described(name, raw.list_of(fields, wide=wide)) + BODY
            with pytest.raises(Misnamed):
                arrival_from(NAMES, forged, 1)


def test_described_descriptors_and_descriptors_of_other_types_are_refused() -> None:
    for name in (
        b"\x52\x73",
        b"\x50\x73",
        b"\x70\0\0\0\x73",
        b"\x00\x53\x73\x53\x73",
        b"\xa1\x01s",
    ):
        for payload in (b"\x00" + name + BOB[3:] + BODY, BODY + b"\x00" + name + BOB[3:]):
            with pytest.raises(ProtocolViolation):
                arrival_from(NAMES, payload, 1)


def a_message(random: Random) -> bytes:
    """A message, which may be forged, and may be damaged in one of many ways."""
    user_id = random.choice((raw.NULL, *[raw.binary(b"ann")] * 9, *OTHERS))
    fields = [random.choice((raw.string("id"), raw.NULL, b"\x44", raw.make_value(random, 1)))]
    fields += [user_id, *(random.choice((raw.NULL, raw.string("x"))) for _ in range(10))]
    fields = fields[: random.choice((0, 1, 2, 3, 9, 10, 12))]
    parts = [
        (0x70, raw.make_header(random)),
        (0x71, raw.make_annotations(random)),
        (0x72, raw.make_annotations(random)),
        (PROPERTIES, raw.list_of(fields, wide=random.random() < 0.3)),
        (MORE, raw.make_application_properties(random)),
        (0x78, raw.make_annotations(random)),
    ]
    likely = (0.7, 0.1, 0.5, 0.9, 0.5, 0.1)
    pieces = [
        raw.section(random, code, content)
        for (code, content), odds in zip(parts, likely, strict=True)
        if random.random() < odds
    ]
    place = len(pieces) - (pieces[-1][1:3] == b"\x53\x78" if pieces else 0)
    body = random.choice(raw.BODIES)
    pieces.insert(place, raw.make_body(random, body, "", random.choice((0, 0, 5))))
    if random.random() < 0.05:
        random.shuffle(pieces)
    if random.random() < 0.05:
        pieces.insert(random.randrange(len(pieces)), random.choice((BOB, ANN, pieces[0])))
    data = bytearray(b"".join(pieces))
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        damage(random, data)
    return bytes(data)


def damage(random: Random, data: bytearray) -> None:
    """Let something say another size, or hide a section, or change any byte."""
    compounds = [at for at, code in enumerate(data[:-2]) if code in b"\xc0\xc1\xd0\xd1\xe0\xf0"]
    way = random.random()
    if way < 0.4 and compounds:
        at = random.choice(compounds) + random.choice((1, 2, 4, 8))
        if at < len(data):
            data[at] = (data[at] + random.choice((-4, -2, -1, 1, 2, 8, 13))) % 256
    elif way < 0.7 and compounds:
        at = random.choice(compounds)
        end = at + 2 + data[at + 1]
        data[at + 1] = (data[at + 1] + len(BOB)) % 256
        data[end:end] = BOB
    elif data:
        data[random.randrange(len(data))] = random.choice((0, 0x40, 0x45, 0x53, 0x73, 0xC0, 0xA0))


def test_whoever_reads_a_message_that_is_taken_finds_the_same_user_id() -> None:
    random = Random(73)
    taken = refused = named = read = 0
    for _ in range(ROUNDS):
        payload = a_message(random)
        try:
            arrival_from(NAMES, payload, 1)
        except (ProtocolViolation, Misnamed):
            refused += 1
            continue
        taken += 1
        found = user_ids(payload)
        assert found in ([], *([name] for name in NAMES)), payload
        assert all(user_ids(payload, belief) == found for belief in Belief), payload
        named += bool(found)
        message = proton.Message()
        try:
            message.decode(payload)
        except (proton.MessageException, proton.DataException, UnicodeDecodeError, ValueError):
            continue
        read += 1
        assert (message.user_id or b"") in NAMES, payload
    assert min(taken, refused, named, read) > ROUNDS // 8


def test_what_is_right_is_taken() -> None:
    random = Random(74)
    for number in range(500):
        payload = raw.make_message(random, number)
        names = frozenset((b"guest",))
        arrival_from(names, payload, 1)
        if user_ids(payload):
            with pytest.raises(Misnamed):
                arrival_from(NAMES, payload, 1)


def test_sizes_are_those_of_what_is_decoded() -> None:
    random = Random(75)
    right = wrong = 0
    for _ in range(ROUNDS):
        data = bytearray(raw.make_value(random))
        end = sizes.check(bytes(data), 0)
        assert end == len(data) == decode(bytes(data))[1]
        damage(random, data)
        try:
            end = sizes.check(bytes(data), 0)
        except ProtocolViolation:
            wrong += 1
            with pytest.raises(ProtocolViolation):
                decode(bytes(data))
            continue
        right += 1
        try:
            assert decode(bytes(data))[1] == end
        except ProtocolViolation:
            pass  # What is no text, say.
    assert min(right, wrong) > ROUNDS // 10


WRONG = [
    sized(0xC1, 1, raw.NULL),  # a key without a value
    sized(0xD1, 3, raw.NULL * 3),
    sized(0xE0, 1, b"\x00\x53\x07\x00\x53\x07\x40"),  # an array of described values
    b"\xa0\x05abc",  # what passes the end
    b"\xb0\x00\x00\x00\x05abc",
    b"\x80\x00",
    b"\xc0\x05\x01\x40",
    b"\x4f",  # what has no type
    b"\x00\x53\x07",
    b"",
]


@pytest.mark.parametrize("value", WRONG)
def test_what_is_no_value_is_refused_alone_and_inside_of_another(value: bytes) -> None:
    for one in (value, raw.list_of([raw.NULL, value]), raw.map_of([raw.string("k"), value])):
        with pytest.raises(ProtocolViolation):
            decode(one)
        with pytest.raises(ProtocolViolation):
            sizes.check(one, 0)
        for payload in (ANN + section(0x77, one), ANN + section(MORE, one) + BODY):
            with pytest.raises(ProtocolViolation):
                arrival_from(NAMES, payload, 1)


def test_what_only_looks_like_a_header_is_refused() -> None:
    for name in (b"\x00\xa3\x70", b"\x00\x52\x70", b"\x53\x00\x70"):
        with pytest.raises(ProtocolViolation):
            arrival_from(NAMES, name + b"\xc0\x03\x01\x56\x01" + ANN + BODY, 1)
    for other in (raw.NULL, b"\xc1\x01\x00", raw.binary(b"")):
        with pytest.raises(ProtocolViolation):
            arrival_from(NAMES, section(0x70, other) + ANN + BODY, 1)


@pytest.mark.parametrize("count", range(9, 14))
@pytest.mark.parametrize("wide", [False, True])
def test_the_absolute_expiry_is_seen_behind_the_user_id(count: int, wide: bool) -> None:
    day = 4_102_444_800_000
    fields = [raw.NULL, raw.binary(b"ann"), *[raw.NULL] * 6, b"\x83" + day.to_bytes(8)]
    fields += [raw.NULL] * (count - len(fields))
    payload = section(PROPERTIES, raw.list_of(fields, wide=wide)) + BODY
    assert arrival_from(NAMES, payload, 1) == (payload, day * 10**6, 0)


@pytest.mark.parametrize("count", [0, 14, 20, 21, 22, 200, 255])
@pytest.mark.parametrize("has", [14, 20, 21])
@pytest.mark.parametrize("code", [0xC0, 0xD0])
def test_properties_with_another_number_of_fields_than_they_say_are_refused(
    code: int, has: int, count: int
) -> None:
    """However many: the specification has 13, and readers may know more."""
    content = raw.NULL + raw.binary(b"ann") + raw.NULL * (has - 2)
    payload = section(PROPERTIES, sized(code, count, content)) + BODY
    if count == has:
        assert arrival_from(NAMES, payload, 1) == (payload, 0, 0)
        return
    with pytest.raises(Malformed):
        sections(payload)
    with pytest.raises(ProtocolViolation):
        arrival_from(NAMES, payload, 1)


def test_a_value_with_many_values_or_nested_deep_is_not_looked_through() -> None:
    deep = b"\x45"
    for _ in range(40):
        deep = raw.list_of([deep])
    many = [raw.list_of([raw.NULL] * 97), raw.list_of([raw.list_of([raw.NULL])] * 20)]
    many += [raw.array_of(b"\xa1", [b"\x00"] * 97), raw.array_of(b"\xc0", [b"\x01\x00"] * 25)]
    for value in (deep, *many):
        with pytest.raises(sizes.TooManyValues):
            sizes.check(value, 0, [100])
    for value in (raw.list_of([raw.NULL] * 90), raw.array_of(b"\x50", [b"x"] * 1000)):
        assert sizes.check(value, 0, [100]) == len(value)


def nested(value: bytes, depth: int = 40) -> bytes:
    for _ in range(depth):
        value = raw.list_of([value])
    return value


def rows(count: int, *more: bytes) -> bytes:
    """A list of rows with a number and a name, and others."""
    row = raw.list_of([raw.uint(7), raw.string("name")])
    return raw.compound(0xC0, 0xD0, [row] * count + list(more), wide=True)


PLAIN = raw.compound(0xC0, 0xD0, [b"\x42"] * 1_048_573, wide=True)
TRUE = raw.array_of(b"\x41", [b""] * 1000)
LARGE = {
    "rows": rows(150_000),
    "a-jms-stream-message": PLAIN,
    "deep": nested(raw.string("x")),
    "with-what-looks-like-the-beginning-of-a-list": rows(
        150_000, raw.map_of([raw.string("names"), raw.list_of([raw.string("x")])])
    ),
    "with-properties-of-nobody": rows(
        150_000, properties(raw.string("m"), raw.NULL, raw.string("q"))
    ),
    "with-the-number-of-properties": rows(150_000, raw.described(raw.small_ulong(0x73), raw.NULL)),
}


@pytest.mark.parametrize("code", [0x76, 0x77])
@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_a_body_is_taken_whatever_its_size_and_depth(value: bytes, code: int) -> None:
    for before in (b"", ANN, section(0x70, b"\x45") + ANN):
        payload = before + section(code, value)
        assert arrival_from(NAMES, payload, 1) == (payload, 0, 0)
    with pytest.raises(Misnamed):
        arrival_from(NAMES, BOB + section(code, value), 1)


def test_an_array_of_many_values_without_bytes_is_taken() -> None:
    """As proton-j writes a thousand times true."""
    for payload in (ANN + section(0x77, TRUE), ANN + section(0x77, raw.list_of([TRUE]))):
        assert arrival_from(NAMES, payload, 1) == (payload, 0, 0)


NUMBERS = [b"\x53\x73", b"\x80" + bytes(7) + b"\x73", b"\x52\x73", b"\x50\x73", b"\x54\x73"]
NUMBERS += [b"\x55\x73", b"\x60\0\x73", b"\x61\0\x73", b"\x70\0\0\0\x73", b"\x71\0\0\0\x73"]
NUMBERS += [b"\x81" + bytes(7) + b"\x73", raw.symbol("amqp:properties:list")]


@pytest.mark.parametrize("code", [0x74, 0x76, 0x77, 0x78])
@pytest.mark.parametrize("name", [*NUMBERS, raw.symbol("amqp:properties:list", wide=True)])
@pytest.mark.parametrize("kind", [0xC0, 0xD0])
def test_no_other_properties_hide_in_what_is_not_looked_through(
    code: int, name: bytes, kind: int
) -> None:
    forged = raw.described(name, sized(kind, 2, raw.NULL + raw.binary(b"bob")))
    hidden = nested(sized(0xC0, 0, forged))
    value = raw.map_of([raw.string("k"), hidden]) if code in (0x74, 0x78) else hidden
    payload = ANN + section(code, value) + (b"" if code > 0x75 else BODY)
    assert user_ids(payload, Belief.SIZE) == [b"ann"]
    with pytest.raises(ProtocolViolation):
        arrival_from(NAMES, payload, 1)


def test_what_is_before_the_properties_is_always_looked_through() -> None:
    for code in (0x70, 0x71, 0x72):
        value = nested(raw.NULL)
        payload = section(code, value if code == 0x70 else raw.map_of([raw.string("k"), value]))
        for rest in (ANN + BODY, section(PROPERTIES, b"\x45") + BODY, BODY):
            with pytest.raises(ProtocolViolation):
                arrival_from(NAMES, payload + rest, 1)
    for user_id in (b"ann", b"bob"):
        forged = properties(raw.NULL, raw.binary(user_id), nested(raw.NULL)) + BODY
        with pytest.raises(ProtocolViolation):
            arrival_from(NAMES, forged, 1)


def test_the_values_of_all_sections_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_view, "MOST_WALKED", 100)
    part = section(0x76, raw.list_of([raw.list_of([raw.NULL]), *[raw.NULL] * 40]))
    marked = section(0x76, raw.list_of([BOB]))
    assert arrival_from(NAMES, part + marked, 1)[0] == part + marked
    assert arrival_from(NAMES, part * 9, 1)[0] == part * 9
    with pytest.raises(ProtocolViolation):
        arrival_from(NAMES, part * 2 + marked, 1)


def test_a_search_for_properties_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_view, "MOST_WALKED", 100)
    for count, is_taken in ((90, True), (110, False)):
        lists = [raw.string("s"), raw.list_of([raw.NULL])] * count
        payload = section(0x77, raw.list_of([nested(raw.NULL), *lists]))
        if is_taken:
            assert arrival_from(NAMES, payload, 1)[0] == payload
            continue
        with pytest.raises(ProtocolViolation):
            arrival_from(NAMES, payload, 1)
