"""What can be shown on a terminal and in a line of a log: names come from anybody who may make
queues, and control characters in them would rewrite what an operator reads.
"""

from __future__ import annotations

from unicodedata import bidirectional, category

TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Characters of these kinds turn the direction of the text after them: what is read is not what is
there.
"""


def printable(text: str) -> str:
    """Return text with an escape in place of each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable_lines(text: str) -> str:
    """Do as `printable`, with text that may have several lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def flaw_in_name(text: str) -> tuple[str, str] | None:
    """Say what keeps text from being a name, and what to do instead; None if it can be one."""
    if text.isprintable():
        return None
    kinds = {category(letter) for letter in text}
    if "Cc" in kinds:
        return f"contains a control character: {text!r}", "use printable characters only"
    if "Cs" in kinds:
        return f"contains a surrogate, which UTF-8 cannot carry: {text!r}", "use Unicode characters"
    return None


def flaw_in_new_name(text: str) -> tuple[str, str] | None:
    """Do as `flaw_in_name` for what is about to be made: one that is there already has to be
    reached to be deleted.
    """
    if text.isprintable():
        return None
    if any(bidirectional(letter) in TURNS for letter in text):
        return (
            f"turns the direction of text: {text!r}",
            "leave U+202A to U+202E, U+2066 to U+2069 out",
        )
    if not {"Zl", "Zp"}.isdisjoint(map(category, text)):
        return f"has a line break in it: {text!r}", "leave U+2028 and U+2029 out"
    return flaw_in_name(text)
