"""PEM: what OpenSSL's words about a file with a certificate, a key or authorities mean.

Source: the reasons in OpenSSL's pemerr.h and x509err.h.
"""

from __future__ import annotations

MEANINGS = {
    "NO_START_LINE": "it is not in PEM form",
    "NO_CERTIFICATE_OR_CRL_FOUND": "no certificate is in it",
    "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
}


def pem_trouble(reason: str | None) -> str:
    """Say what is wrong with a file, by OpenSSL's reason, which it does not always give."""
    if not reason:
        return "it is not in PEM form, or a part is missing"
    return MEANINGS.get(reason, reason.replace("_", " ").lower())
