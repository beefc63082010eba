"""Password files: what a file that holds a password says. It is the first line; what follows may be
a comment.

Reads no files: whoever does knows which error to make of it.
"""

from __future__ import annotations


def password_in(content: bytes) -> str:
    """Return the password of a file. Raises ValueError that says what is wrong with the file."""
    lines = content.splitlines()
    if not lines or not lines[0]:
        raise ValueError("its first line, which is the password, is empty")
    try:
        return lines[0].decode()
    except UnicodeDecodeError:
        raise ValueError("its first line, which is the password, is not UTF-8") from None
