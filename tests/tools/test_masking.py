"""What nobody else may know is taken out of texts and values."""

from __future__ import annotations

import pytest

from qpidha.tools.bundle.masking import MASK, Masking

KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nIKx/sQ==\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"a\n{KEY}\nb", f"a\n{MASK}\nb"),
        ("-----BEGIN PRIVATE KEY-----\nMHcC", MASK),
        ("amqp://ann:p@ss:w0rd@h1:5672/x", f"amqp://ann:{MASK}@h1:5672/x"),
        ("https://ann:pw@h/x?y=1", f"https://ann:{MASK}@h/x?y=1"),
        ("ha-brokers-url=amqp:ann/pw@tcp:h1,h2", f"ha-brokers-url=amqp:ann/{MASK}@tcp:h1,h2"),
        ("amqp:h1:5672,h2:5672", "amqp:h1:5672,h2:5672"),
        ("ha-password=abc", f"ha-password={MASK}"),
        ('{"password": "abc"}', f'{{"password": "{MASK}"}}'),
        ("the token is abc, so", f"the token is {MASK}, so"),
        ("ha-password-file=/etc/pw", "ha-password-file=/etc/pw"),
        ("ann:SCRAM-SHA-256$4096:c2FsdA==$abc:def", f"ann:{MASK}"),
        ("queue orders has 7 messages", "queue orders has 7 messages"),
        ("Authorization: Bearer abc.def", f"Authorization: {MASK}"),
        ("Authorization: Basic YTpi\nHost: h", f"Authorization: {MASK}\nHost: h"),
        ("curl -H 'Authorization: Bearer abc' x", f"curl -H 'Authorization: {MASK}' x"),
        ("Cookie: session=abc; a=b", f"Cookie: {MASK}"),
        ("a bearer abc", f"a bearer {MASK}"),
        ("qpid-ha --password abc list", f"qpid-ha --password {MASK} list"),
        ("qpid-ha --password-file abc list", "qpid-ha --password-file abc list"),
        ("password='a b' c", f"password='{MASK}' c"),
        (
            '{"msg": "x", "password": "a \\"b", "n": 1}',
            f'{{"msg": "x", "password": "{MASK}", "n": 1}}',
        ),
        ("GET /x?access_token=abc&a=1", f"GET /x?access_token={MASK}"),
        ("pwd=abc pw:abc", f"pwd={MASK} pw:{MASK}"),
        ("api_key=abc", f"api_key={MASK}"),
        ("-b ann:abc@h1:5672,h2", f"-b ann:{MASK}@h1:5672,h2"),
        ("-b ann/abc@h1", f"-b ann/{MASK}@h1"),
        ("https://abc@h/", f"https://{MASK}@h/"),
        ("amqp://ann@h/", "amqp://ann@h/"),
        ("the user ann@QPID of 10.0.0.1:5672", "the user ann@QPID of 10.0.0.1:5672"),
    ],
)
def test_secrets_are_found_by_what_stands_around_them(text: str, masked: str) -> None:
    assert Masking().text(text) == masked


def test_known_secrets_are_found_wherever_they_stand() -> None:
    masking = Masking()
    masking.learn_text("port=5672\n ha-password = hunter2\n# ha-password=x\n")
    masking.learn_arguments(["--ha-password", "pw1", "--port", "5672"])
    masking.learn_environment({"QPIDHA_HA_PASSWORD": "pw2", "API_TOKEN": "t0ken", "HOME": "/root"})
    masking.add("", "1")
    text = "xhunter2x pw1 pw1x pw2 t0ken 5672 /root 1"
    assert masking.text(text) == f"x{MASK}x {MASK} pw1x {MASK} {MASK} 5672 /root 1"


def test_fields_and_arguments_are_masked_by_their_names() -> None:
    masking = Masking()
    given = {
        "password": "a b",
        "rows": [{"api_token": "x", "n": 1}],
        "password_file": "/p",
        "k": None,
    }
    assert masking.value(given) == {
        "password": MASK,
        "rows": [{"api_token": MASK, "n": 1}],
        "password_file": "/p",
        "k": None,
    }
    words = ["--ha-password", "a b", "--ha-password=c d", "--port", "1"]
    assert masking.arguments(words) == [
        "--ha-password",
        MASK,
        f"--ha-password={MASK}",
        "--port",
        "1",
    ]
