"""Event codes: one table, which the source uses and the page of messages explains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qpidha.model import errors, event_codes
from qpidha.model.errors import NotFound, QpidHaError, QueueFull, RefusedRequest, coded
from qpidha.model.event_codes import GROUPS, TABLE
from tests.model.messages_page import PAGE, page

ROOT = Path(__file__).parents[2]
NAMES = {
    name: value
    for name, value in vars(event_codes).items()
    if isinstance(value, str) and re.fullmatch(r"QHA\d{4}", value)
}
SOURCES = {
    path: path.read_text()
    for folder in ("qpidha", "agents", "ocf")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix in ("", ".py", ".sh")
}


def test_friendliness_10_every_code_is_explained_and_every_explained_code_exists() -> None:
    assert PAGE.read_text() == page(), "python -m tests.model.messages_page writes it anew"
    explained = re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE)
    assert explained == list(TABLE) == sorted(set(NAMES.values()))
    assert all(code[3] in GROUPS for code in TABLE)


def test_every_code_is_given_somewhere_and_none_by_its_number() -> None:
    table = ROOT / "qpidha" / "model" / "event_codes.py"
    others = {path: text for path, text in SOURCES.items() if path != table}
    words = {word for text in others.values() for word in re.findall(r"\w+", text)}
    assert [name for name in NAMES if name not in words] == []
    numbers = re.compile(r"[\"']QHA\d{4}[\"']")
    assert [str(path) for path, text in others.items() if numbers.search(text)] == []


@pytest.mark.parametrize("code", TABLE)
def test_a_code_says_what_why_and_what_to_do(code: str) -> None:
    row = TABLE[code]
    for text in (row.meaning, row.cause, row.remedy):
        assert text[0].isupper() or text[0] in "`[", text
        assert text[-1] in ".)" and "  " not in text, text
        assert set(re.findall(r"QHA\d{4}", text)) <= TABLE.keys()


def test_every_class_of_errors_has_a_known_code_or_none() -> None:
    classes = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, QpidHaError)
    ]
    assert {kind.event_code for kind in classes} - {""} <= TABLE.keys()
    assert QueueFull("x").event_code == event_codes.QUEUE_FULL
    given = RefusedRequest("x", event_code=event_codes.CATCHING_UP)
    assert given.details == {"event_code": "QHA2104"}


def test_a_refusal_gets_the_code_of_where_it_comes_from_unless_it_has_one() -> None:
    @coded(event_codes.POLICY_REFUSED)
    def refuse(error: RefusedRequest) -> None:
        raise error

    for error, code in ((RefusedRequest("x"), "QHA7110"), (NotFound("x"), "QHA7108")):
        with pytest.raises(RefusedRequest) as refused:
            refuse(error)
        assert refused.value.event_code == code
