"""Logging in with a browser: a token becomes a cookie, and nobody else's page can use it."""

from __future__ import annotations

import http.client
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from qpidha.client.blocking import Client
from qpidha.client.errors import ClientError
from qpidha.client.message import Message
from tests.console.conftest import Pair
from tests.console.consoles import Answer, Console
from tests.patience import STATE
from tests.system.cluster import Admin, wait_for

TOKEN = "monitor-0123456789abcdef"
OPERATOR = "operator-0123456789abcdef"
ADMINISTRATOR = "administrator-0123456789abcdef"
OTHER = "http://127.0.0.2:8672"


@pytest.fixture(scope="module")
def console(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    lines = (f"monitor {TOKEN}", f"operator {OPERATOR}", f"administrator {ADMINISTRATOR}")
    tokens.write_text("\n".join(lines))
    tokens.chmod(0o600)
    options = ("--data-dir", pair.place, "--token-file", tokens, "--consoles", OTHER)
    with Console(*options) as found:
        yield found


def ask(console: Console, path: str, method: str = "GET", body: str = "", **more: str) -> Answer:
    """Ask as a browser does: a POST says from where it comes."""
    host = f"127.0.0.1:{console.port}"
    headers = {"Accept": "text/html"} | more
    if method == "POST":
        headers = {"Origin": f"http://{host}"} | headers
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=STATE)
    connection.request(method, path, body or None, headers)
    found = connection.getresponse()
    text = found.read().decode()
    connection.close()
    return Answer(found.status, text, {k.lower(): v for k, v in found.getheaders()})


def logged_in(console: Console, token: str = TOKEN) -> str:
    """Log in, and return what the cookie says."""
    answer = ask(console, "/login", "POST", f"token={token}")
    assert answer.status == 303
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_page_without_a_token_leads_to_the_login_and_back(console: Console) -> None:
    path = "/queues?match=a%26b&sort=name"
    answer = ask(console, path)
    login = f"/login?next={quote(path, safe='')}"
    assert (answer.status, answer.headers["location"]) == (303, login)
    form = ask(console, login)
    assert form.status == 200 and f'action="{login}"' in form.text
    assert "default-src 'none'" in form.headers["content-security-policy"]
    assert ask(console, "/static/dashboard.css").status == 200
    answer = ask(console, login, "POST", f"token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, path)
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
    page = ask(console, path, Cookie=cookie.partition(";")[0])
    assert page.status == 200 and "Log out" in page.text
    # A queue whose name has signs of an address, and what only a browser takes for a page.
    odd = ask(console, "/queues/a%3Fb%2520c?broker=x")
    onward = quote("/queues/a%3Fb%2520c?broker=x", safe="")
    assert (odd.status, odd.headers["location"]) == (303, f"/login?next={onward}")
    assert ask(console, "/polices").headers["location"] == "/login?next=%2Fpolices"
    assert ask(console, "/polices", Accept="*/*").status == 401


def test_a_cookie_is_let_in_as_a_token_is_and_other_things_are_not(console: Console) -> None:
    cookie = logged_in(console)
    for path in ("/readyz", "/api/v1/status", "/metrics", "/"):
        assert ask(console, path, Cookie=cookie).status == 200
        assert ask(console, path, Authorization=f"Bearer {TOKEN}").status == 200
        wrong = ask(console, path, Cookie="qpidha-console=wrong-0123456789abcdef")
        assert wrong.status == (303 if path == "/" else 401)
    assert ask(console, "/api/v1/status").status == 401
    # A wrong token is not made right by a cookie.
    assert ask(console, "/readyz", Cookie=cookie, Authorization="Bearer x").status == 401


def test_a_wrong_token_is_said_to_be_wrong(console: Console) -> None:
    for body in ("token=wrong", "", "token=%FF", "token=" + "x" * 100):
        answer = ask(console, "/login", "POST", body)
        assert answer.status == 403 and "This token is not known here" in answer.text
        assert "set-cookie" not in answer.headers
    assert ask(console, "/login", "POST", "token=" + "x" * 5000).status == 413
    assert ask(console, "/login", "PUT").status in (403, 405)


@pytest.mark.parametrize(
    "onward", ["//evil.example/", "https://evil.example", "/\\evil.example", "/\r\nX: y", "x", ""]
)
def test_the_login_leads_nowhere_else(console: Console, onward: str) -> None:
    path = f"/login?next={quote(onward, safe='')}"
    answer = ask(console, path, "POST", f"token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_pages_of_other_sites_cannot_log_in_or_out_or_use_the_cookie(console: Console) -> None:
    cookie = logged_in(console)
    for origin in ("http://evil.example", OTHER, "null", ""):
        for path in ("/login", "/logout", "/queues", "/api/v1/status"):
            answer = ask(console, path, "POST", f"token={TOKEN}", Cookie=cookie, Origin=origin)
            assert answer.status == 403, (origin, path)
            assert "set-cookie" not in answer.headers


def test_who_logs_out_has_no_cookie_any_more(console: Console) -> None:
    answer = ask(console, "/logout", "POST", Cookie=logged_in(console))
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_pages_of_other_consoles_learn_that_this_one_answers(console: Console) -> None:
    answer = ask(console, "/healthz", Origin=OTHER)
    assert answer.status == 401
    assert answer.headers["access-control-allow-origin"] == OTHER
    assert "access-control-allow-credentials" not in answer.headers


def test_another_host_is_refused_before_anything_else(console: Console) -> None:
    for path in ("/login", "/static/dashboard.css", "/"):
        assert ask(console, path, Host="evil.example").status == 421


def test_without_a_token_file_everybody_may_look(pair: Pair) -> None:
    answer = ask(pair.console, "/login")
    assert answer.status == 200 and "without a <code>--token-file" in answer.text
    assert ask(pair.console, "/login", "POST", "token=x").status == 403
    assert ask(pair.console, "/", Cookie="qpidha-console=x").status == 200


@pytest.fixture
def queue(pair: Pair) -> Iterator[str]:
    name = "to be/purged & <b>"
    with Admin(pair.place / "admin.sock") as admin:
        admin.call("declare_queue", name=name)
        with Client(f"127.0.0.1:{pair.daemon.port}", timeout=STATE) as client:
            client.sender("/queues/" + quote(name, safe="")).send(Message("m"))
        yield name
        if admin.call("list_queues", name=name):
            admin.call("delete_queue", name=name)


def messages(pair: Pair, name: str) -> int | None:
    with Admin(pair.place / "admin.sock") as admin:
        found = admin.call("list_queues", name=name)
    return found[0]["messages"] if found else None


def test_actions_are_offered_to_those_who_may(pair: Pair, console: Console, queue: str) -> None:
    page = "/queues/" + quote(queue, safe="")
    plan = "/do/purge_queue?name=" + quote(queue, safe="")
    body = "name=" + quote(queue, safe="")
    monitor = logged_in(console)
    assert "Purge" not in ask(console, page, Cookie=monitor).text
    for answer in (
        ask(console, plan, Cookie=monitor),
        ask(console, "/do/purge_queue", "POST", body, Cookie=monitor),
    ):
        assert answer.status == 403 and "this needs the scope operator" in answer.text
    assert "/do/" not in ask(pair.console, page).text
    assert ask(pair.console, plan).status == 401
    assert ask(pair.console, "/do/purge_queue", "POST", body).status == 401
    operator = logged_in(console, OPERATOR)
    assert "/do/purge_queue?name=" in ask(console, page, Cookie=operator).text
    assert ask(console, "/do/close_connection?id=1", Cookie=operator).status == 403
    assert messages(pair, queue) == 1


def test_an_action_says_first_what_it_would_do(pair: Pair, console: Console, queue: str) -> None:
    operator = logged_in(console, OPERATOR)
    plan = ask(console, "/do/purge_queue?name=" + quote(queue, safe=""), Cookie=operator)
    assert plan.status == 200 and "1 of 1 messages of the queue" in plan.text
    assert "Nothing is done yet" in plan.text and "<b>" not in plan.text
    assert "http-equiv" not in plan.text, "it stays until somebody decides"
    assert messages(pair, queue) == 1
    body = "name=" + quote(queue, safe="")
    foreign = ask(console, "/do/purge_queue", "POST", body, Cookie=operator, Origin=OTHER)
    assert foreign.status == 403 and messages(pair, queue) == 1
    done = ask(console, "/do/purge_queue", "POST", body, Cookie=operator)
    assert done.status == 200 and "Done: purge the queue" in done.text
    assert messages(pair, queue) == 0
    assert ask(console, "/do/delete_queue", "POST", body, Cookie=operator).status == 200
    assert messages(pair, queue) is None
    again = ask(console, "/do/delete_queue", "POST", body, Cookie=operator)
    assert again.status == 404 and "queue" in again.text


def test_a_connection_is_closed_by_an_administrator(pair: Pair, console: Console) -> None:
    cookie = logged_in(console, ADMINISTRATOR)
    with Client(f"127.0.0.1:{pair.daemon.port}", timeout=STATE, reconnect_timeout=0) as client:
        page = ask(console, "/connections", Cookie=cookie).text
        (number,) = re.findall(r"/do/close_connection\?id=(\d+)", page)
        assert (
            "would be closed"
            in ask(console, f"/do/close_connection?id={number}", Cookie=cookie).text
        )
        body = f"id={number}"
        assert ask(console, "/do/close_connection", "POST", body, Cookie=cookie).status == 200
        wait_for(
            lambda: "/do/close_connection?id=" in ask(console, "/connections", Cookie=cookie).text,
            False.__eq__,
        )
        with pytest.raises(ClientError):
            client.sender("nothing")


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/do/shutdown", 404, "There is no action “shutdown”"),
        ("/do/purge_queue", 400, "parameter name is missing or empty"),
        ("/do/purge_queue?name=nothing", 404, "nothing"),
        ("/do/close_connection?id=x", 400, "is to be an integer"),
        ("/do/close_connection?id=99999", 404, "there is no connection 99999"),
        ("/do/switchover", 200, "No broker can take over now"),
    ],
)
def test_what_cannot_be_done_is_said_on_a_page(
    console: Console, path: str, status: int, why: str
) -> None:
    answer = ask(console, path, Cookie=logged_in(console, ADMINISTRATOR))
    assert answer.status == status and why in answer.text, answer.text[-1500:]
    assert answer.headers["content-type"].startswith("text/html")


def test_requests_that_break_off_say_nothing_in_the_log(pair: Pair, tmp_path: Path) -> None:
    """Each had a traceback there, and needed no token: strangers could fill a disk with them."""
    tokens, log = tmp_path / "tokens", tmp_path / "log"
    tokens.write_text(f"operator {OPERATOR}")
    tokens.chmod(0o600)
    head = "Host: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Length: 4000\r\n"
    change = f"Authorization: Bearer {OPERATOR}\r\nContent-Type: application/json\r\n"
    requests = (
        f"POST /login HTTP/1.1\r\n{head}\r\ntoken=",
        f"POST /api/v1/methods/purge_queue HTTP/1.1\r\n{head}{change}\r\n{{",
        "this is no HTTP\r\n\r\n",
    )
    with (
        log.open("w") as errors,
        Console("--data-dir", pair.place, "--token-file", tokens, errors=errors) as console,
    ):
        assert ask(console, "/login").status == 200
        before = log.read_text()
        for each in requests:
            with socket.create_connection(("127.0.0.1", console.port), STATE) as stream:
                stream.sendall(each.encode())
                assert ask(console, "/login").status == 200
        # The console is to have seen that they are gone.
        pid = console.process.pid
        wait_for(lambda: open_sockets(pid), lambda count: count <= 2, what="closed connections")
        assert ask(console, "/login").status == 200
        assert log.read_text() == before


def open_sockets(pid: int) -> int:
    """Count the TCP connections of a process that are established or that the other end closed."""
    folder = Path(f"/proc/{pid}/fd")
    inodes = {os.readlink(each)[8:-1] for each in folder.iterdir() if each.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[9] in inodes and row[3] in ("01", "08") for row in rows)
