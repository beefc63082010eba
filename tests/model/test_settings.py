"""Settings and their sources."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.errors import InvalidArgument
from qpidha.model.options import CATEGORIES, Duration
from qpidha.model.settings import DEFAULTS, FIELD_OF, GROUPS, OPTIONS, Settings, load_with_origins
from qpidha.model.url import parse_url

QPIDD_CONF = """\
# Configuration file for qpidd. Entries are of the form:
#   name=value
# (Note: no spaces on either side of '=')
cluster-mechanism=ANONYMOUS
acl-file=/etc/qpid/qpidd.acl
auth=no
worker-threads=4
mgmt-enable=yes
load-module=/usr/lib/qpid/daemon/ha.so
log-enable=info+
log-enable=debug+:ha
log-to-syslog=no
syslog-facility=LOG_LOCAL3
max-negotiate-time=2000
ha-cluster=yes
ha-brokers-url=node1.example.com,node2.example.com,node3.example.com
ha-public-url=20.0.20.200
ha-replicate=all
link-heartbeat-interval=0.25
"""


def load(text=None, env=(), argv=()):
    """Load the settings of a broker for programs of this machine, unless something else is said."""
    files = [("the tests", "interface=lo"), ("/etc/qpid/qpidd.conf", text or "")]
    settings, warnings, _ = load_with_origins(files, dict(env), list(argv))
    return settings, warnings


def refusal(text=None, env=(), argv=()):
    with pytest.raises(InvalidArgument) as caught:
        load(text, env, argv)
    return caught.value


def test_an_unchanged_qpidd_conf_is_read():
    settings, warnings = load(QPIDD_CONF)
    assert settings.ha_cluster and settings.ha_replicate == "all" and not settings.auth
    assert settings.ha_brokers_url == parse_url(
        "node1.example.com,node2.example.com,node3.example.com"
    )
    assert settings.link_heartbeat_interval == SECOND // 4
    assert settings.max_negotiate_time == 2 * SECOND
    assert settings.log_level == "info+,debug+:ha"
    assert [warning.split()[0] for warning in warnings if "is ignored" in warning] == [
        "cluster-mechanism",
        "worker-threads",
        "mgmt-enable",
        "load-module",
    ]
    assert (settings.log_to_syslog, settings.syslog_facility) == (False, "local3")


def test_rules_and_quotas_of_qpidd_are_options():
    settings, warnings = load(
        "users-file=u\nacl-file=qpidd.acl\nmax-connections-per-user=3\nmax-connections-per-ip=4\n"
        "max-queues-per-user=5"
    )
    assert settings.acl_file.endswith("qpidd.acl") and not any("ignored" in one for one in warnings)
    assert (settings.connection_limit_per_user, settings.connection_limit_per_ip) == (3, 4)
    assert settings.max_queues_per_user == 5


def test_the_command_line_wins_over_qpidha_over_qpid_over_the_file():
    layers = [
        ("port=1", {}, ()),
        ("port=1", {"QPID_PORT": "2"}, ()),
        ("port=1", {"QPID_PORT": "2", "QPIDHA_PORT": "3"}, ()),
    ]
    layers.append(("port=1", {"QPID_PORT": "2", "QPIDHA_PORT": "3"}, ("--port", "4")))
    assert [load(*layer)[0].port for layer in layers] == [1, 2, 3, 4]


def test_a_later_file_wins_and_the_origin_is_known():
    settings, _, origins = load_with_origins(
        [("a.conf", "port=1\nauth=no"), ("b.conf", "port=2")], {}, ["--ha-cluster"]
    )
    assert settings.port == 2
    assert origins == {
        "port": "line 1 of b.conf",
        "auth": "line 2 of a.conf",
        "ha-cluster": "command line",
    }


@pytest.mark.parametrize(
    "argv",
    [
        ["--ha-cluster"],
        ["--ha-cluster", "yes"],
        ["--ha-cluster=on"],
        ["--ha-cluster", "--port", "1"],
    ],
)
def test_a_switch_needs_no_value(argv):
    assert load(argv=argv)[0].ha_cluster


@pytest.mark.parametrize(
    ("text", "says", "hints"),
    [
        ("port=99999", ["port=99999", "line 1 of /etc/qpid/qpidd.conf"], "from 0 to 65535"),
        ("\nha-replicate=most", ["ha-replicate=most", "line 2 of"], "none, configuration, all"),
        ("ha-backup-timeout=soon", ["ha-backup-timeout=soon"], "such as 2s, 0.5s, 100ms"),
        ("ha-clustre=yes", ["unknown option ha-clustre", "line 1"], "did you mean ha-cluster?"),
        ("quux=yes", ["unknown option quux"], "--help"),
        ("port=1\nport=2", ["port is given twice", "line 1", "line 2"], "leave one"),
        ("just words", ["line 1", "not name=value"], "name=value"),
        ("interface=eth0\nauth=yes", ["auth", "line 2", "no client could log in"], "users-file"),
        (
            "users-file=u\nha-cluster=yes\nha-brokers-url=a,b,c",
            ["auth", "the brokers could not log in to each other"],
            "ha-username",
        ),
        ("require-encryption=yes", ["require-encryption", "without a certificate"], "ssl-cert"),
        ("ssl-cert=c\nssl-port=5672", ["ssl-port", "same as port"], "5671"),
        ("ha-brokers-url=a,,b", ["ha-brokers-url=a,,b", "comma"], "amqp:host1:5672"),
        ("advertised-address=a b", ["advertised-address"], "host:port"),
        ("ha-brokers-url=node1;node2", ["node1;node2 is not an address"], "amqp:host1:5672"),
        ("ha-brokers-url=a,b,a:5672", ["ha-brokers-url", "a:5672 is listed twice"], "once"),
    ],
)
def test_an_error_names_key_value_source_and_what_is_accepted(text, says, hints):
    error = refusal(text)
    for part in says:
        assert part in error.text
    assert hints in error.hint


def test_a_word_behind_a_switch_that_is_no_value_of_it_is_told_what_it_takes():
    with pytest.raises(InvalidArgument, match="maybe is not an option") as caught:
        load(argv=["--ha-cluster", "maybe"])
    assert caught.value.hint.startswith("ha-cluster takes yes or no")
    with pytest.raises(InvalidArgument, match="maybe is not an option") as caught:
        load(argv=["--ha-cluster", "yes", "maybe"])
    assert caught.value.hint == "write options as --name value"


def test_errors_of_environment_and_command_line_name_them():
    assert "environment variable QPID_PORT" in refusal(env={"QPID_PORT": "x"}).text
    assert "command line" in refusal(argv=["--port", "x"]).text
    assert "needs a value" in refusal(argv=["--port"]).text


def test_unknown_variables_of_other_programs_are_no_errors():
    _, warnings = load(env={"QPID_TESTS": "1", "QPIDHA_URL": "x", "QPIDHA_HA_CLUSTR": "yes"})
    assert _about(warnings, "QPIDHA_") == [warnings[0]]
    assert "did you mean ha-cluster?" in warnings[0]
    _, warnings = load(env={"QPIDHA_NOSUCH": "1"})
    assert len(_about(warnings, "QPIDHA_NOSUCH is no option")) == 1


def _about(warnings: list[str], text: str) -> list[str]:
    return [warning for warning in warnings if text in warning]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("interface=0.0.0.0\nauth=no", "auth=no: whoever reaches this host"),
        ("interface=lo,eth0\nauth=no", "auth=no: "),
        ("interface=127.0.0.1\nauth=no", ""),
        ("interface=lo,::1", ""),
        ("interface=127.0.0.1\nha-cluster=yes", "link-heartbeat-interval=120: "),
        ("interface=lo\nha-brokers-url=amqps:a,b", "ha-brokers-url has ssl:a:5671"),
        ("interface=lo\nha-brokers-url=amqps:a,b\nssl-cert=c", ""),
        ("auth=no\nha-username=u", "ha-username=u without ha-password"),
        ("auth=no\nha-username=u\nha-mechanism=EXTERNAL", ""),
        ("interface=lo\nlog-enable=info+,debug+:nosuch", "no line is of category nosuch"),
        ("interface=lo\nlog-enable=info+,debug+:HA,trace:net", ""),
        ("interface=lo\nlog-disable=info-:nosuch", "no line is of category nosuch"),
        ("interface=lo\nlog-enable=trace+\nlog-disable=info-:amqp,debug-:HA", "category amqp"),
        ("interface=lo\nlog-enable=trace+\nlog-disable=info-:network,debug-:HA", ""),
    ],
)
def test_first_use_m20_m21_an_operator_is_told_of_what_is_hardly_wanted(text, says):
    _, warnings = load(text)
    assert _about(warnings, says) if says else not warnings, warnings


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("users-file=u\nsasl-mechanisms=PLAIN", "sasl-mechanisms"),
        ("users-file=u\nha-mechanism=PLAIN", "ha-mechanism"),
        ("users-file=u\nha-mechanism=PLAIN\nha-brokers-url=amqps:a,b\nssl-cert=c", ""),
        ("users-file=u\nsasl-mechanisms=PLAIN\nssl-cert=c", ""),
        ("users-file=u\nsasl-mechanisms=PLAIN,EXTERNAL", ""),
        ("users-file=u\nsasl-mechanisms=PLAIN\nha-mechanism=PLAIN\nsasl-plain-without-tls=yes", ""),
        ("auth=no\nsasl-mechanisms=PLAIN\nha-mechanism=PLAIN", ""),
    ],
)
def test_plain_without_tls_that_nobody_could_use_is_refused(text, says):
    common = "ha-cluster=yes\nha-brokers-url=a,b\nha-username=u\nha-password=p\n"
    if "ha-brokers-url" in text:
        common = common.replace("ha-brokers-url=a,b\n", "")
    if says:
        error = refusal(common + text)
        assert says in error.text and "PLAIN needs TLS" in error.text
    else:
        load(common + text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ha-mechanism=ANONYMOUS", "ANONYMOUS contradicts auth=yes"),
        ("ha-mechanism=ANONYMOUS\nauth=no", ""),
        ("ha-mechanism=EXTERNAL", "EXTERNAL needs TLS"),
        ("ha-mechanism=EXTERNAL\nha-brokers-url=amqps:a,b", ""),
        ("ha-mechanism=SCRAM-SHA-512", ""),
    ],
)
def test_a_mechanism_that_lets_no_broker_in_is_refused(text, says):
    common = "ha-cluster=yes\nha-username=u\nha-password=p\nusers-file=u\nssl-cert=c\n"
    if "ha-brokers-url" not in text:
        common += "ha-brokers-url=a,b\n"
    if says:
        error = refusal(common + text)
        assert "ha-mechanism (" in error.text and says in error.text
    else:
        load(common + text)


def test_code_7_passwords_that_everybody_sees_are_told_of():
    says = "sasl-plain-without-tls=yes: whoever listens"
    text = "users-file=u\nsasl-plain-without-tls=yes\n"
    assert _about(load(text)[1], says)
    assert not _about(load(f"{text}ssl-cert=c\nrequire-encryption=yes")[1], says)


@pytest.mark.parametrize("option", ["sasl-mechanisms", "ha-mechanism"])
@pytest.mark.parametrize(
    ("mechanism", "says"),
    [
        ("DIGEST-MD5", "its hash is broken; use SCRAM-SHA-256"),
        ("cram-md5", "its hash is broken"),
        ("SCRAM-SHA-1", "its hash is broken"),
        ("LOGIN", "it is not one of the accepted words"),
    ],
)
def test_qpid_20_mechanisms_of_others_are_refused_by_name(option, mechanism, says):
    error = refusal(f"{option}={mechanism}")
    assert f"{option}={mechanism}" in error.text and says in error.text
    assert "SCRAM-SHA-512" in error.hint


def test_the_login_of_the_brokers_may_stand_in_their_addresses():
    """It was taken for one when the settings were checked, and nobody logged in with it."""
    url = "auth=no\nha-brokers-url=amqp:ha/secret@a,b"
    for more, user, password in (
        ("", "ha", "secret"),
        ("ha-username=ha", "ha", "secret"),
        ("ha-username=ha\nha-password=x", "ha", "x"),
        ("ha-username=other\nha-password=x", "other", "x"),
    ):
        settings, warnings = load(f"{url}\n{more}")
        assert (settings.ha_username, settings.ha_password) == (user, password)
        assert warnings == (
            ["ha-username=other is used, and not the user ha of ha-brokers-url"]
            if user == "other"
            else []
        )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("auth=no", "with auth=no. Set auth=yes, or leave it out"),
        ("sasl-mechanisms=SCRAM-SHA-256", "with sasl-mechanisms without GSSAPI. Add GSSAPI there"),
        ("acl-file=/a", ""),
    ],
)
def test_a_keytab_without_effect_is_told(text, says):
    _, warnings = load(f"users-file=/u\nsasl-keytab=/k\n{text}")
    said = [each for each in warnings if each.startswith("sasl-keytab has no effect ")]
    assert len(said) == bool(says) and all(says in each for each in said)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ha-password-file=p", "ha-password-file .*: it needs ha-username"),
        ("auth=no\nha-username=u\nha-password=x\nha-password-file=p", "ha-password is given too"),
    ],
)
def test_a_file_with_the_brokers_password_needs_a_user_and_no_other_password(text, says):
    assert re.search(says, refusal(text).text)


def test_a_file_with_the_brokers_password_comes_before_that_in_their_addresses():
    settings, warnings = load("auth=no\nha-brokers-url=amqp:u/x@a,b\nha-password-file=/p")
    assert settings.ha_password_file == "/p" and not settings.ha_password and not warnings


def test_first_use_m22_every_category_of_a_line_of_the_log_can_be_selected():
    used = set()
    for path in (Path(__file__).parents[2] / "qpidha").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Announce":
                assert isinstance(call.args[1], ast.Constant), (path, call.lineno)
                used.add(str(call.args[1].value).lower())
            elif isinstance(call, ast.Call) and ast.unparse(call).startswith("self._log.write("):
                used.add(ast.literal_eval(call.args[1]).lower() if len(call.args) == 3 else "ha")
    assert used <= set(CATEGORIES)


def test_a_secret_is_never_shown():
    settings, _ = load("auth=no\nha-username=ha\nha-password=a#b c")
    assert settings.ha_password == "a#b c"
    assert "a#b" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "anonymous"),
    [
        ("interface=lo,localhost,127.3.2.1,::1,[::1]", True),
        ("interface=lo\nauth=yes", True),
        ("interface=lo\nusers-file=u", False),
        ("interface=lo\nssl-trusted=t\nssl-cert=c", False),
        ("interface=lo\nssl-trusted=t\nssl-cert=c\nlisten-disable=ssl", True),
        ("interface=lo\nssl-trusted=t", True),
        ("interface=lo\nssl-cert=c", True),
        ("interface=lo,10.0.0.1\nusers-file=u", False),
        ("interface=lo\nusers-file=u\nauth=no", True),
        ("interface=0.0.0.0\nauth=no", True),
    ],
)
def test_code_d1_clients_log_in_unless_only_this_machine_can_be_one(text, anonymous):
    settings, _ = load(text)
    assert settings.anonymous is anonymous
    assert settings.auth is ("auth=no" not in text)


@pytest.mark.parametrize(
    "text",
    ["", "interface=eth0", "interface=lo,eth0", "interface=127.x.org", "interface=lo\nsocket-fd=3"],
)
def test_code_d1_a_broker_that_strangers_reach_has_users_or_says_that_it_has_none(text):
    with pytest.raises(InvalidArgument, match="no client could log in: there are no users") as no:
        Settings.load(text, {}, [])
    for way in ("users-file", "interface=127.0.0.1", "auth=no"):
        assert way in no.value.hint
    assert Settings.load(f"{text}\nauth=no", {}, [])[0].anonymous
    load_with_origins([("qpidd.conf", text)], {}, [], together=False)


def test_authorities_without_a_port_for_tls_let_nobody_in():
    for more in ("", "\nssl-cert=c\nlisten-disable=ssl"):
        error = refusal(f"interface=eth0\nssl-trusted=t{more}")
        assert "there are no users (ssl-trusted lets clients in where ssl-cert" in error.text
        assert "users-file" in error.hint and "ssl-cert and ssl-trusted" in error.hint
        for_users = refusal(f"realm=R\nssl-trusted=t{more}")
        assert "realm (line 1" in for_users.text and "ssl-cert" in for_users.text
    load("interface=eth0\nssl-trusted=t\nssl-cert=c")


def test_certificates_alone_do_not_say_which_of_them_are_brokers():
    cluster = "ha-cluster=yes\nha-brokers-url=amqps:a,b\nssl-trusted=t\nssl-cert=c\n"
    error = refusal(cluster)
    assert "could not log in to each other" in error.text
    assert "the name in the brokers' certificates" in error.hint
    load(f"{cluster}ha-username=node\nha-mechanism=EXTERNAL")


@pytest.mark.parametrize("line", ["realm=R", "realm=QPID", "ha-username=u", "acl-file=a"])
@pytest.mark.parametrize("interface", ["lo", "eth0"])
def test_qpid_3_what_is_for_users_is_refused_by_name_where_there_are_none(line, interface):
    error = refusal(f"interface={interface}\n{line}")
    assert f"{line.partition('=')[0]} (line 2 of" in error.text and "auth=no" in error.hint
    for more in ("auth=no", "users-file=u"):
        load(f"interface={interface}\n{line}\n{more}")


def test_qpid_3_a_user_in_the_addresses_of_the_brokers_is_one_too():
    assert "ha-brokers-url (line 1" in refusal("ha-brokers-url=amqp:ha/secret@a,b").text


def test_brokers_of_this_machine_alone_need_no_login():
    load("ha-cluster=yes\nha-brokers-url=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")


def test_settings_refuse_values_that_are_not_theirs():
    for wrong in (
        {"port": "5672"},
        {"port": -1},
        {"ha_cluster": 1},
        {"ha_brokers_url": "a"},
        {"ha_replicate": "some"},
    ):
        with pytest.raises(InvalidArgument):
            Settings(**wrong)


def test_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_every_option_has_help_a_group_and_a_default_that_reads_back():
    for name, described in OPTIONS.items():
        default = DEFAULTS[FIELD_OF[name]]
        assert described.group in GROUPS and described.help.endswith(".") and described.kind.accepts
        assert described.kind.check(default)
        shown = described.kind.show(default)
        assert described.kind.parse(shown) == default


@pytest.mark.parametrize(
    "name", [name for name, described in OPTIONS.items() if isinstance(described.kind, Duration)]
)
def test_every_duration_takes_less_than_a_second(name):
    assert getattr(load(f"{name}=20ms")[0], FIELD_OF[name]) == 20 * MILLISECOND


@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=4))
def test_any_text_gives_settings_or_a_clear_refusal(text, argv):
    try:
        Settings.load(text, {}, argv)
    except InvalidArgument as error:
        assert error.text and error.hint


TWO = "ha-cluster=yes\nha-brokers-url=a,b\ndata-dir=/tmp/x\nha-replicate=all\n"


@pytest.mark.parametrize(
    ("more", "is_worried"),
    [("", True), ("ha-recorder=manager", False), ("ha-safety=trust-manager", False)],
)
def test_two_brokers_that_need_a_majority_are_worried_about(more, is_worried):
    _, warnings = load(TWO + more)
    assert (
        any(
            "Set ha-recorder=manager where the cluster manager keeps the record" in text
            for text in warnings
        )
        is is_worried
    )


def test_a_store_for_what_is_not_recorded_is_refused():
    error = refusal(TWO + "ha-safety=trust-manager\nha-recorder=manager")
    assert (
        "ha-recorder (line 6 of" in error.text
        and "with ha-safety=trust-manager no set is recorded" in error.text
    )
    assert "set ha-safety=strict" in error.hint


def test_a_relative_path_begins_where_it_was_written():
    settings, _ = load(
        "data-dir=data\nadmin-socket=/run/a.sock\nlog-to-file=\nssl-cert=../tls/cert.pem\nname=x"
    )
    assert (settings.data_dir, settings.admin_socket, settings.log_to_file) == (
        "/etc/qpid/data",
        "/run/a.sock",
        "",
    )
    assert (settings.ssl_cert, settings.name) == ("/etc/qpid/../tls/cert.pem", "x")
    assert load("data-dir=data", argv=["--data-dir", "other"])[0].data_dir == "other"
    assert load("data-dir=data", env={"QPIDHA_DATA_DIR": "third"})[0].data_dir == "third"
    files = [
        ("/etc/qpidha/qpidha.conf", "data-dir=a\nusers-file=u"),
        ("/etc/qpidha/conf.d/x.conf", "data-dir=b"),
    ]
    settings, _, _ = load_with_origins(files, {}, [])
    assert (settings.data_dir, settings.users_file) == ("/etc/qpidha/conf.d/b", "/etc/qpidha/u")
    here, _ = Settings.load("data-dir=data\nauth=no", {}, [], file_name="here.conf")
    assert here.data_dir == "data", "both in the working directory"


@pytest.mark.parametrize(
    ("more", "warns"),
    [
        ("", True),
        ("\nha-mechanism=EXTERNAL", True),
        ("\nacl-file=acl", False),
        ("\nsasl-mechanisms=SCRAM-SHA-256,PLAIN", False),
        ("\nsasl-mechanisms=SCRAM-SHA-256,EXTERNAL", False),  # It is meant.
        ("\nlisten-disable=ssl", False),
    ],
)
def test_who_enters_by_a_certificate_beside_users_is_told_of(more, warns):
    _, warnings = load(f"users-file=u\nssl-cert=c\nssl-trusted=t{more}")
    found = [warning for warning in warnings if warning.startswith("ssl-trusted: whoever has")]
    assert len(found) == warns
    for text in ("auth=no\nssl-cert=c\nssl-trusted=t", "ssl-cert=c\nssl-trusted=t\ninterface=a"):
        assert not any("ssl-trusted: whoever" in warning for warning in load(text)[1])
