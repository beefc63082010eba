"""Routes between real brokers: a chain from one broker over a cluster to another, with kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import LONG_TEST
from tests.soak.chain import Chain, Options
from tests.system.clients import send
from tests.system.cluster import wait_for
from tests.system.credentials import Authority, users_file

pytestmark = pytest.mark.system


@pytest.mark.timeout(2 * LONG_TEST)
def test_line_2_of_issue_18_a_chain_of_routes_loses_nothing_while_primaries_are_killed(
    tmp_path: Path,
) -> None:
    options = Options(tmp_path / "chain", 8.0, rate=1000.0, kill_every=4.0, dedup=True)
    summary = Chain(options).run()
    print(f"\n{summary}")
    assert summary["kills"] >= 1
    assert summary["lost"] == 0 and summary["twice"] == 0 and summary["passed"]


def test_a_link_over_tls_logs_in_and_a_wrong_password_is_told(a_cluster, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker")
    options = {"ssl_cert": certificate, "ssl_key": key, "ssl_trusted": authority.certificate}
    users = users_file(tmp_path / "users", {"ann": "secret", "ha": "h"})
    login = {"ha_username": "ha", "ha_password": "h"}
    (there,) = a_cluster(1, encrypted=True, users_file=users, **login, **options)
    (here,) = a_cluster(1, **options)
    for broker in (here, there):
        broker.declare_queue("q")
    here.wait_enabled("federation")
    address = f"amqps://localhost:{there.encrypted_port.number}"
    link = {"name": "l", "addresses": address, "username": "ann"}
    here.call("declare_link", **link, password="wrong")

    def shown():
        return here.call("list_links")[0]

    wait_for(shown, lambda row: row["state"] == "waiting" and row["last_error"], what="the link")
    here.call("declare_link", **link, password="secret")
    wait_for(shown, lambda row: row["state"] == "operational", what="the link")
    here.call("declare_route", name="r", link="l", source="q", destination="q", direction="push")
    send(here, "q", ["over TLS"])
    wait_for(
        lambda: there.call("list_queues", name="q")[0]["messages"], (1).__eq__, what="the queue"
    )
