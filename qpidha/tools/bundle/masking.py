"""Masking: takes what nobody else may know out of everything that goes into a bundle.

Secrets are found twice: those that are known (what the options, their files and the environment of
a broker say) by their text, wherever it stands; others by what stands around them: private keys,
credentials in URLs, and whatever is called a password. Rather too much is masked than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qpidha.model.password_file import password_in
from qpidha.model.settings import OPTIONS

MASK = "(secret)"
SECRET_OPTIONS = tuple(name for name, option in OPTIONS.items() if option.secret)
PASSWORD_FILES = ("ha-password-file", "ssl-key-password-file")
"""Options that name a file whose first line is a password."""
SECRET_NAME = re.compile(r"password|passwd|passphrase|secret|token|credential|private.?key", re.I)
"""What names of variables and fields with secrets have in them."""
SHORTEST, LONG = 3, 6
"""Characters from which a known secret is masked at all, and from which inside of words, too."""
_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_URL = re.compile(
    r"(\b[a-z][a-z0-9+.-]*://[^\s:/@\"']*[:/]|\bamqps?:[^\s:/@\"']+[:/])([^\s\"']+)(?=@)", re.I
)
_BARE = re.compile(r"(\b[\w.+-]+[:/])([^\s:/@\"',]+)(?=@[\w\[])")
"""Credentials as -b takes them, without a scheme."""
_WEB = re.compile(r"(\bhttps?://)([^\s:/@\"']+)(?=@)", re.I)
"""A token in the place of a user."""
_HEADER = re.compile(
    r"(\b(?:authorization|cookie)[\"']?\s*[:=]\s*[\"']?|\bbearer\s+)([^\r\n\"']+)", re.I
)
_SAID = re.compile(
    r"(\b[\w.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key)[\"']?"
    r"\s*(?:[=:]\s*|\s+is\s+)"
    r"|--[\w-]*(?:password|passphrase|secret|token)\s+|\b(?:pwd|pass|pw)\s*[=:]\s*)"
    r"(\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\s\"',;]+)",
    re.I,
)
"""What is called a secret, and the word behind it, or all that is in quotes."""
_VERIFIER = re.compile(r"SCRAM-SHA-\d+\$[^\s\"']+")
_OPTION = re.compile(r"^\s*([\w-]+)\s*=(.*)$", re.MULTILINE)


class Masking:
    """The secrets that are known, and the rules for those that are not."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def add(self, *secrets: str) -> None:
        """Learn secrets; of what is shorter than three characters every text would be full."""
        self._known.update(one for one in secrets if len(one) >= SHORTEST and one != MASK)
        self._pattern = None

    def learn_text(self, text: str) -> None:
        """Learn the secrets of a configuration file."""
        for name, value in _OPTION.findall(text):
            self.learn_option(name, value.strip())

    def learn_arguments(self, words: Sequence[str]) -> None:
        """Learn the secrets of a command line."""
        for index, word in enumerate(words):
            name, equals, value = word.removeprefix("--").partition("=")
            following = words[index + 1] if index + 1 < len(words) else ""
            self.learn_option(name, value if equals else following)

    def learn_environment(self, env: Mapping[str, str]) -> None:
        """Learn the secrets of an environment."""
        for name, value in env.items():
            if SECRET_NAME.search(name) and not name.endswith("_FILE"):
                self.add(value)
            for prefix in ("QPIDHA_", "QPID_"):
                if name.startswith(prefix):
                    option = name.removeprefix(prefix).lower().replace("_", "-")
                    self.learn_option(option, value)

    def learn_option(self, name: str, value: str) -> None:
        """Learn the secret of one option, if it has one."""
        if name in SECRET_OPTIONS:
            self.add(value)
        elif name in PASSWORD_FILES:
            self.learn_password_file(value)
        elif name.endswith("url"):
            self.add(*(found[1] for found in _URL.findall(value)))

    def learn_password_file(self, path: str) -> None:
        """Learn the password in a file, if it can be read."""
        try:
            self.add(password_in(Path(path).read_bytes()))
        except (OSError, ValueError):
            pass

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = _KEY.sub(MASK, text)
        text = _VERIFIER.sub(MASK, text)
        for pattern in (_URL, _BARE, _WEB, _HEADER):
            text = pattern.sub(rf"\g<1>{MASK}", text)
        if self._known:
            text = self._compiled().sub(MASK, text)
        return _SAID.sub(_masked, text)

    def value(self, value: Any) -> Any:
        """Return a value of JSON without secrets, in names as well."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): MASK
                if isinstance(one, str) and one and _is_secret_name(str(key))
                else self.value(one)
                for key, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        return value

    def arguments(self, words: Iterable[str]) -> list[str]:
        """Return a command line without secrets."""
        masked: list[str] = []
        is_secret = False
        for word in words:
            name, equals, _ = word.removeprefix("--").partition("=")
            is_named = word.startswith("--") and name in SECRET_OPTIONS
            shown = f"--{name}={MASK}" if is_named and equals else self.text(word)
            masked.append(MASK if is_secret else shown)
            is_secret = is_named and not equals
        return masked

    def _compiled(self) -> re.Pattern[str]:
        if self._pattern is None:
            parts = [
                re.escape(secret) if len(secret) >= LONG else rf"(?<!\w){re.escape(secret)}(?!\w)"
                for secret in sorted(self._known, key=len, reverse=True)
            ]
            self._pattern = re.compile("|".join(parts))
        return self._pattern


def _masked(found: re.Match[str]) -> str:
    quote = found[2][0] if found[2][0] in "\"'" else ""
    return f"{found[1]}{quote}{MASK}{quote}"


def _is_secret_name(name: str) -> bool:
    return bool(SECRET_NAME.search(name)) and not name.endswith(("file", "path"))
