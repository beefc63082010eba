"""Who may ask, and by which name a console may be called."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from qpidha.console.access import Access, read_tokens
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
    ],
)
def test_the_host_is_ours_or_not(host: str, is_ours: bool) -> None:
    assert Access(hosts=("Console.example",)).is_our_host(host) is is_ours


@pytest.mark.parametrize(
    ("header", "is_known"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {TOKEN}", True),
        (f"Basic {TOKEN}", False),
        ("Bearer ", False),
        ("", False),
        (f"Bearer {TOKEN}x", False),
        ("Bearer \u00e9", False),
    ],
)
def test_a_token_is_known_or_not(header: str, is_known: bool) -> None:
    assert Access((TOKEN, "another-token-of-ours")).knows(header) is is_known
    assert Access().knows(header)


def token_file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_token_file_has_lines_of_a_scope_and_a_token(tmp_path: Path) -> None:
    text = f"# Prometheus\nmonitor {TOKEN}\n\nmonitor another-token-of-ours\n"
    assert read_tokens(token_file(tmp_path, text, 0o640)) == (TOKEN, "another-token-of-ours")


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (f"monitor {TOKEN}", 0o644, "others can read it"),
        (f"monitor {TOKEN}", 0o620, "its group can write it"),
        (f"operator {TOKEN}", 0o600, "line 1: it is not `monitor TOKEN`"),
        (f"# x\n{TOKEN}", 0o600, "line 2"),
        ("monitor short", 0o600, "16 characters"),
        ("# nothing", 0o600, "it has no token"),
    ],
)
def test_a_token_file_that_is_wrong_is_refused(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_tokens(token_file(tmp_path, text, mode))
    assert why in caught.value.text and caught.value.hint


def test_a_token_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="No such file"):
        read_tokens(str(tmp_path / "none"))
