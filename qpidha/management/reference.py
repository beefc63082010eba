"""The reference of management: the tables of methods, classes and status codes as Markdown.

docs/management.md has it; a test compares.
"""

from __future__ import annotations

from qpidha.management.methods import METHODS, Effect, Method
from qpidha.management.schema import CLASSES, ObjectClass
from qpidha.management.status_codes import STATUS_OF

TITLES = {Effect.READ: "Reads", Effect.CHANGE: "Changes", Effect.COMMAND: "Commands"}


def documentation() -> str:
    """Describe every method, every class and the status codes."""
    parts = []
    for effect, title in TITLES.items():
        parts.append(f"## {title}\n")
        parts += [_method(method) for method in METHODS if method.effect is effect]
    parts.append("## Classes\n\nAttributes as JSON and, in brackets, AMQP management name them.\n")
    parts += [_class(kind) for kind in CLASSES.values()]
    parts.append("## Status codes\n\nOf both AMQP windows.\n")
    parts.append("| status | error |\n|---|---|\n" + "".join(_status_rows()))
    return "\n".join(parts)


def _status_rows() -> list[str]:
    rows = [(status, f"`{condition}`") for condition, status in STATUS_OF.items()]
    rows += [
        (401, "`amqp:unauthorized-access`, for a client that has not logged in"),
        (403, "`amqp:unauthorized-access`, for a client that has"),
        (405, "`amqp:not-allowed`: a verb that is not offered on the path"),
        (500, "any other"),
        (503, "`amqp:not-allowed` by a broker that is not primary, or is handing over"),
    ]
    return [f"| {status} | {text} |\n" for status, text in sorted(rows)]


def _method(method: Method) -> str:
    lines = [f"### {method.name}\n", f"\n{method.help} Answers {method.answers}.\n"]
    if method.parameters:
        lines.append("\n| parameter | type | |\n|---|---|---|\n")
        for each in method.parameters:
            kind = f"{each.type.value}, required" if each.is_required else each.type.value
            lines.append(f"| `{each.name}` | {kind} | {each.help} |\n")
    windows = [f"access: {method.access}"]
    windows += [f"`{operation}` on `{kind.type}`" for kind, operation in method.operations]
    windows += [f"`{route}`" for route in method.routes]
    lines.append(f"\n{'; '.join(windows)}\n")
    return "".join(lines)


def _class(kind: ObjectClass) -> str:
    names = ", ".join(
        f"`{each.name}`" if each.name == each.attribute else f"`{each.name}` (`{each.attribute}`)"
        for each in kind.properties
    )
    return f"`{kind.type}`: {names}\n"
