"""PEM: what OpenSSL's words about a file with a certificate, a key or authorities mean.

Source: the reasons in OpenSSL's pemerr.h and x509err.h.
"""

from __future__ import annotations

NO_PASSWORD = "the key needs a password"
WRONG_PASSWORD = "the key has another password"
MEANINGS = {
    "NO_START_LINE": "it is not in PEM form",
    "NO_CERTIFICATE_OR_CRL_FOUND": "no certificate is in it",
    "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
}


class KeyPassword:
    """The password of a private key, as OpenSSL asks for it while it loads one. Where there is none
    it would ask on the terminal, for which a daemon or an application would hang.
    """

    __slots__ = ("_password", "_was_taken")

    def __init__(self, password: str) -> None:
        self._password = password
        self._was_taken = False

    def __call__(self) -> str:
        if not self._password:
            raise ValueError(NO_PASSWORD)
        self._was_taken = True
        return self._password

    def trouble(self, reason: str | None) -> str:
        """Say what is wrong with the files, by OpenSSL's reason: it has none for a wrong
        password.
        """
        return WRONG_PASSWORD if self._was_taken and not reason else pem_trouble(reason)


def pem_trouble(reason: str | None) -> str:
    """Say what is wrong with a file, by OpenSSL's reason, which it does not always give."""
    if not reason:
        return "it is not in PEM form, or a part is missing"
    return MEANINGS.get(reason, reason.replace("_", " ").lower())
