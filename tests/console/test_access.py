"""Who may ask, and by which name a console may be called."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from qpidha.console.access import Access, Scope, is_own_origin, read_tokens
from qpidha.model.errors import InvalidArgument

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("", True),
        ("localhost:8672", True),
        ("LOCALHOST", True),
        ("127.0.0.1:8672", True),
        ("[::1]:8672", True),
        ("192.0.2.7", True),
        ("console.example:8672", True),
        (socket.gethostname(), True),
        ("evil.example", False),
        ("localhost.evil.example:8672", False),
        ("127.0.0.1.evil.example", False),
        ("[::1.evil.example]", False),
        ("[::1].evil.example", False),
        ("127.0.0.1:8672.evil.example", False),
    ],
)
def test_the_host_is_ours_or_not(host: str, is_ours: bool) -> None:
    assert Access(hosts=("Console.example",)).is_our_host(host) is is_ours


def token_file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("header", "is_known"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {TOKEN} ", True),
        (f"Basic {TOKEN}", False),
        (TOKEN, False),
        ("Bearer ", False),
        ("Bearer", False),
        ("", False),
        (f"Bearer {TOKEN}x", False),
        (f"Bearer {TOKEN[:-1]}", False),
        (f"Bearer {TOKEN}, Bearer {TOKEN}", False),
        ("Bearer \u00e9", False),
    ],
)
def test_a_token_is_known_or_not(tmp_path: Path, header: str, is_known: bool) -> None:
    text = f"monitor another-token-of-ours\noperator {TOKEN} ann\n"
    access = Access(read_tokens(token_file(tmp_path, text)))
    for sent in (header.encode("latin-1"), header.encode()):
        found = access.token_of(sent)
        assert (found is not None) is is_known is access.knows(header)
        assert found is None or (found.name, found.scope) == ("ann", Scope.OPERATOR)
    assert access.token_of(b"Bearer \xff\x00") is None
    assert Access().token_of(header.encode()) is None and Access().knows(header)


def test_a_token_file_has_lines_of_a_scope_a_token_and_a_name(tmp_path: Path) -> None:
    lines = (
        "# Prometheus",
        f"monitor {TOKEN}",
        "",
        f"administrator {TOKEN}2= bob",
        "operator a/+~.-_b-0123456",
    )
    found = read_tokens(token_file(tmp_path, "\n".join(lines), 0o640))
    assert [(token.scope, token.name) for token in found] == [
        (Scope.MONITOR, "the monitor of line 2"),
        (Scope.ADMINISTRATOR, "bob"),
        (Scope.OPERATOR, "the operator of line 5"),
    ]
    assert TOKEN not in repr(found)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (f"monitor {TOKEN}", 0o644, "others can read it"),
        (f"monitor {TOKEN}", 0o620, "its group can write it"),
        (f"manager {TOKEN}", 0o600, "line 1: there is no scope manager"),
        (f"Monitor {TOKEN}", 0o600, "line 1: there is no scope Monitor"),
        (f"# x\n{TOKEN}", 0o600, "line 2: it is not `SCOPE TOKEN [NAME]`"),
        (f"monitor {TOKEN} ann smith", 0o600, "line 1: it is not"),
        ("monitor short", 0o600, "16 characters"),
        (f"monitor {'x' * 513}", 0o600, "512 at most"),
        (f"monitor {TOKEN}\u00e9", 0o600, "letters, digits"),
        (f"monitor {TOKEN}\u200b", 0o600, "letters, digits"),
        (f"monitor {TOKEN}\noperator {TOKEN}", 0o600, "line 2: the same token stands above"),
        ("# nothing", 0o600, "it has no token"),
    ],
)
def test_a_token_file_that_is_wrong_is_refused(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_tokens(token_file(tmp_path, text, mode))
    assert why in caught.value.text and caught.value.hint
    assert TOKEN not in caught.value.text.partition(": ")[2]


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://localhost:8672", "localhost:8672", True),
        ("https://Console.example", "console.example", True),
        ("http://localhost:8673", "localhost:8672", False),
        ("http://localhost", "localhost:8672", False),
        ("http://evil.example", "localhost:8672", False),
        ("http://localhost:8672.evil.example", "localhost:8672", False),
        ("http://evil@localhost:8672", "localhost:8672", False),
        ("null", "localhost:8672", False),
        ("null", "", False),
        ("http://", "", False),
        ("file://localhost:8672", "localhost:8672", False),
    ],
)
def test_a_page_is_our_own_or_not(origin: str, host: str, is_own: bool) -> None:
    assert is_own_origin(origin, host) is is_own


def test_a_token_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        read_tokens(str(tmp_path / "none"))
