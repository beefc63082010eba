"""Selectors: the text of a selector becomes a function that says whether a message is selected.

Two languages share a grammar: that of JMS, as Qpid reads it, and the SQL filter of AMQP's filter
expressions, as RabbitMQ reads it (`Dialect`). A text is parsed once, by lark, and each part of it
becomes a closure over the values that the text names; nothing is evaluated as Python. What a peer
may ask for is bounded: the length of the text, its parts, and how deep they are in each other.

- Unknown is None: a name that a message does not have, and what comes of it (three-valued logic).
  Only what is true is selected.
- Values are text, numbers and truth values. Only like ones can be compared; the comparison of
  others is false. Text is compared by its code points. A value of any other type is unknown.
- A number beyond 64 bits becomes approximate. What has no result (a division by zero) is unknown.

Which value a name means is in `selector_names.py`. Source: JMS 2.0 section 3.8.1; Qpid
`Selector.cpp`, `SelectorExpression.cpp`; AMQP filter expressions (filtex 1.0), RabbitMQ
`rabbit_amqp_filter_sql.erl`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from qpidha.broker.queues.selector_names import Dialect, Reader
from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from lark import Lark, Token

    from qpidha.model.message import Message

    Values = list[Any]
    Evaluate = Callable[[Values], Any]

MAX_TEXT = 8 << 10
"""Characters of a selector."""
MAX_PARTS = 500
"""Names, values and operators of a selector."""
MAX_BRACKETS = 1000
"""Pairs of parentheses, which are no parts: 4,000 took seven times as long to parse as parts do."""
MAX_DEPTH = 50
"""How deep its parts may be in each other."""
PARSED = 64
"""Selectors that are remembered, for consumers with the same one."""
PARTS_A_LOOK = 16
"""So many parts cost as much as the first look at a message."""
INT64 = 1 << 63
GRAMMAR = r"""
?start: either
?either: both (_OR both)*
?both: negated (_AND negated)*
?negated: _NOT negated -> negation
    | comparison
?comparison: sum
    | sum COMPARE sum -> compare
    | sum _IS _NULL -> is_null
    | sum _IS _NOT _NULL -> is_not_null
    | sum _LIKE STRING -> like
    | sum _LIKE STRING _ESCAPE STRING -> like
    | sum _NOT _LIKE STRING -> not_like
    | sum _NOT _LIKE STRING _ESCAPE STRING -> not_like
    | sum _BETWEEN sum _AND sum -> between
    | sum _NOT _BETWEEN sum _AND sum -> not_between
    | sum _IN "(" sum ("," sum)* ")" -> within
    | sum _NOT _IN "(" sum ("," sum)* ")" -> not_within
?sum: product (SIGN product)*
?product: factor (TIMES factor)*
?factor: SIGN factor -> signed
    | "(" either ")"
    | NAME -> name
    | QUOTED -> quoted
    | STRING -> literal
    | APPROXIMATE -> approximate
    | EXACT -> exact
    | TRUE -> truth
    | FALSE -> truth

_OR.4: /or(?![PART])/i
_AND.4: /and(?![PART])/i
_NOT.4: /not(?![PART])/i
_IS.4: /is(?![PART])/i
_NULL.4: /null(?![PART])/i
_LIKE.4: /like(?![PART])/i
_ESCAPE.4: /escape(?![PART])/i
_BETWEEN.4: /between(?![PART])/i
_IN.4: /in(?![PART])/i
TRUE.4: /true(?![PART])/i
FALSE.4: /false(?![PART])/i
NAME.1: /(?!\d)[FIRST][PART]*/
QUOTED: /"(?:[^"]|"")+"/
STRING: /'(?:[^']|'')*'/
APPROXIMATE.3: /APPROX/
EXACT.2: /WHOLE/
COMPARE: /<>|<=|>=|COMPARISONS/
SIGN: /[+-]/
TIMES: /[OPERATORS]/
COMMENT.5: /--|\/\*/
_WS: /[ \t\f\r\n]+/
%ignore COMMENT
%ignore _WS
"""
_DIGITS, _EXPONENT = r"\d[\d_]*", r"[eE][+-]?\d+"
TERMINALS = {
    Dialect.JMS: {
        "FIRST": r"\w$",
        "PART": r"\w$.",
        "APPROX": rf"(?:{_DIGITS}\.[\d_]*|\.{_DIGITS})(?:{_EXPONENT})?[fFdD]?"
        rf"|{_DIGITS}(?:{_EXPONENT}[fFdD]?|[fFdD])",
        "WHOLE": rf"0[xX][\da-fA-F][\da-fA-F_]*[lL]?|0[bB][01][01_]*[lL]?|{_DIGITS}[lL]?",
        "COMPARISONS": "[<>=]",
        "OPERATORS": r"*\/",
    },
    Dialect.SQL: {
        "FIRST": r"\w$",
        "PART": r"\w$.\-",
        "APPROX": rf"(?:\d+\.\d*|\.\d+)(?:{_EXPONENT})?|\d+{_EXPONENT}",
        "WHOLE": r"\d+",
        "COMPARISONS": "!=|[<>=]",
        "OPERATORS": r"*\/%",
    },
}
"""What differs between the languages, by the words that stand for it in the grammar."""


class Part(NamedTuple):
    """A part of a selector, compiled."""

    evaluate: Evaluate
    depth: int
    constant: bool = False


@dataclass(frozen=True)
class MessageSelector:
    """Says which messages a consumer wants; equal ones have the same key."""

    key: tuple[object, ...]
    """What it was made of."""
    cost: int = field(compare=False)
    selects: Callable[[Message], bool] = field(compare=False)
    """Whether a message is selected; one that cannot be read is not."""


def all_of(selectors: list[MessageSelector]) -> MessageSelector | None:
    """Return what selects the messages that each of these selects; None for none."""
    if len(selectors) < 2:
        return selectors[0] if selectors else None
    checks = [selector.selects for selector in selectors]
    return MessageSelector(
        tuple(selector.key for selector in selectors),
        sum(selector.cost for selector in selectors),
        lambda message: all(selects(message) for selects in checks),
    )


@lru_cache(PARSED)
def parse(dialect: Dialect, text: str) -> MessageSelector | None:
    """Compile a selector; None for an empty one, which selects everything. Raise InvalidArgument,
    with the place in the text, for one that cannot be used.
    """
    if len(text) > MAX_TEXT:
        raise InvalidArgument(
            f"the {dialect} has {len(text)} characters", reason=f"{MAX_TEXT} at most are taken"
        )
    if not text.strip():
        return None
    compiler, parser = _parser(dialect)
    compiler.begin(text)
    lark = _load_lark()
    try:
        part: Any = parser.parse(text)
    except lark.UnexpectedCharacters as error:
        place = int(str(error.pos_in_stream))
        what = "quote has no end" if text[place] in "'\"" else "character has no meaning"
        raise compiler.refused(place, f"this {what}") from None
    except lark.UnexpectedToken as error:
        raise _unexpected(compiler, error) from None
    read, evaluate = compiler.reader.read, part.evaluate

    def selects(message: Message) -> bool:
        values = read(message)
        return values is not None and evaluate(values) is True

    return MessageSelector((dialect, text), 1 + compiler.count // PARTS_A_LOOK, selects)


@lru_cache(len(Dialect))
def _parser(dialect: Dialect) -> tuple[_Compiler, Lark]:
    """Return what reads a language; made once."""
    terminals = TERMINALS[dialect]
    grammar = re.sub(
        "|".join(rf"\b{word}\b" for word in terminals), lambda found: terminals[found[0]], GRAMMAR
    )
    compiler = _Compiler(dialect)
    parser = _load_lark().Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        transformer=compiler,
        lexer_callbacks={"COMMENT": compiler.refuse_comment, "LPAR": compiler.count_bracket},
    )
    return compiler, parser


def _load_lark() -> Any:
    """Return lark, which the first call loads: it takes 40 ms, and most brokers have no selectors,
    as commands have none.
    """
    import lark

    return lark


def _unexpected(compiler: _Compiler, error: Any) -> InvalidArgument:
    token, names = error.token, error.accepts or error.expected
    wanted = (
        "a name, a value, NOT or ( is expected"
        if "NAME" in names
        else "a text in ' is expected"
        if "STRING" in names
        else "an operator, AND, OR or the end is expected"
        if "_AND" in names and "_OR" in names
        else "it cannot go on so"
    )
    if token.type == "$END":
        return compiler.refused(len(compiler.text), f"it ends too early: {wanted}")
    return compiler.refused(token.start_pos, f"{str(token)[:40]!r} cannot be here: {wanted}")


class _Compiler:
    """Makes closures of what the parser finds: a method for each rule of the grammar."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.begin("")

    def begin(self, text: str) -> None:
        """Begin with another text."""
        self.text = text
        self.count = self.brackets = 0
        self.reader = Reader(self.dialect)

    def refused(self, place: int, what: str) -> InvalidArgument:
        """Say where the text cannot be used, and why."""
        return InvalidArgument(
            f"the {self.dialect} cannot be used at character {place + 1}: {what}",
            reason=f"it says {self.text[:place][-40:]!r} and then {self.text[place:][:40]!r}",
            hint="see docs/selectors.md for the language",
        )

    def refuse_comment(self, token: Token) -> Token:
        """Called for what would begin a comment in SQL."""
        raise self.refused(
            token.start_pos or 0,
            "comments are not allowed"
            if token != "--"
            else "comments are not allowed; put a space between two minus signs",
        )

    def count_bracket(self, token: Token) -> Token:
        """Called for each parenthesis that opens."""
        self.brackets += 1
        if self.brackets > MAX_BRACKETS:
            raise self._too_large()
        return token

    def _too_large(self) -> InvalidArgument:
        return InvalidArgument(
            f"the {self.dialect} is too large",
            reason=f"{MAX_PARTS} names, values and operators at most are taken, {MAX_DEPTH} in "
            f"each other, and {MAX_BRACKETS} parentheses",
            hint="IN takes many values for one operator",
        )

    def _part(self, evaluate: Evaluate, *below: Part, constant: bool = False) -> Part:
        self.count += 1
        depth = 1 + max((part.depth for part in below), default=0)
        if self.count > MAX_PARTS or depth > MAX_DEPTH:
            raise self._too_large()
        return Part(evaluate, depth, constant)

    def _constant(self, value: Any) -> Part:
        return self._part(lambda values: value, constant=True)

    # Names and values.

    def name(self, found: list[Token]) -> Part:
        """A name."""
        return self._named(found[0], str(found[0]))

    def quoted(self, found: list[Token]) -> Part:
        """A name in quotes, which may have any characters."""
        return self._named(found[0], _unquoted(found[0]))

    def _named(self, token: Token, name: str) -> Part:
        slot = self.reader.slot(name)
        if slot is None:
            raise self.refused(token.start_pos or 0, f"the name {name[:60]} is not known")
        return self._part(operator.itemgetter(slot))

    def literal(self, found: list[Token]) -> Part:
        """A text."""
        return self._constant(_unquoted(found[0]))

    def truth(self, found: list[Token]) -> Part:
        """True or false."""
        return self._constant(found[0].type == "TRUE")

    def approximate(self, found: list[Token]) -> Part:
        """An approximate number."""
        value = float(found[0].rstrip("fFdD").replace("_", ""))
        if value in (float("inf"), float("-inf")):
            raise self.refused(found[0].start_pos or 0, "the number is too large")
        return self._constant(value)

    def exact(self, found: list[Token]) -> Part:
        """An exact number: decimal, or in JMS hexadecimal, octal or binary as well."""
        digits = found[0].rstrip("lL").replace("_", "").lower()
        prefix = digits[:2]
        bases = {"0x": 16, "0b": 2} if self.dialect is Dialect.JMS else {}
        is_octal = self.dialect is Dialect.JMS and len(digits) > 1 and digits[0] == "0"
        base = bases.get(prefix, 8 if is_octal else 10)
        try:
            value = int(digits, base)
        except ValueError:
            raise self.refused(
                found[0].start_pos or 0, "a number that begins with 0 is octal"
            ) from None
        if base != 10 and INT64 <= value < 2 * INT64:
            value -= 2 * INT64
        if value > INT64:
            raise self.refused(found[0].start_pos or 0, "the number is too large")
        return self._constant(value)

    # Arithmetic.

    def sum(self, found: list[Any]) -> Part:
        """A sum or a product, from left to right."""
        first, *rest = [part.evaluate for part in found[::2]]
        steps = list(zip([self._operator(sign) for sign in found[1::2]], rest, strict=True))
        if len(steps) == 1:
            combine, other = steps[0]
            return self._part(
                lambda values: _calculate(combine, first(values), other(values)), *found[::2]
            )

        def evaluate(values: Values) -> Any:
            result = first(values)
            for combine, other in steps:
                result = _calculate(combine, result, other(values))
            return result

        return self._part(evaluate, *found[::2])

    product = sum

    def _operator(self, sign: Token) -> Callable[[Any, Any], Any]:
        if sign == "/" and self.dialect is Dialect.JMS:
            return _divide
        return OPERATORS[str(sign)]

    def signed(self, found: list[Any]) -> Part:
        """A number with a sign."""
        sign, part = found
        evaluate = part.evaluate
        if part.constant and _is_number(value := evaluate([])):
            self.count -= 1
            return self._constant(-value if sign == "-" else value)
        if sign == "-":
            return self._part(lambda values: _calculate(operator.sub, 0, evaluate(values)), part)
        return self._part(lambda values: _calculate(operator.add, 0, evaluate(values)), part)

    # Comparisons.

    def compare(self, found: list[Any]) -> Part:
        """A comparison of two."""
        left, sign, right = found
        return self._compared(left, COMPARISONS[str(sign)], right)

    def _compared(self, left: Part, comparison: Callable[[Any, Any], Any], right: Part) -> Part:
        one, other = left.evaluate, right.evaluate
        if comparison is _equal and right.constant and isinstance(value := other([]), str):
            # By far the most selectors; text equals nothing but text.
            def equals(values: Values) -> Any:
                found = one(values)
                return None if found is None else found == value

            return self._part(equals, left, right)
        return self._part(lambda values: comparison(one(values), other(values)), left, right)

    def is_null(self, found: list[Part]) -> Part:
        """Whether there is no such value."""
        evaluate = found[0].evaluate
        return self._part(lambda values: evaluate(values) is None, found[0])

    def is_not_null(self, found: list[Part]) -> Part:
        """Whether there is such a value."""
        evaluate = found[0].evaluate
        return self._part(lambda values: evaluate(values) is not None, found[0])

    def between(self, found: list[Part]) -> Part:
        """At least the one and at most the other."""
        value, low, high = found
        return self.both([self._compared(value, _least, low), self._compared(value, _most, high)])

    def not_between(self, found: list[Part]) -> Part:
        """Below the one or above the other."""
        value, low, high = found
        return self.either([self._compared(value, _less, low), self._compared(value, _more, high)])

    def within(self, found: list[Part]) -> Part:
        """Equal to one of several."""
        first, *others = found
        evaluate = first.evaluate
        if not all(part.constant for part in others):
            return self.either([self._compared(first, _equal, other) for other in others])
        wanted = frozenset(_kept_apart(part.evaluate([])) for part in others)

        def is_one(values: Values) -> Any:
            value = evaluate(values)
            return None if value is None else _kept_apart(value) in wanted

        return self._part(is_one, *found)

    def not_within(self, found: list[Part]) -> Part:
        """Equal to none of several."""
        return self.negation([self.within(found)])

    def like(self, found: list[Any]) -> Part:
        """Text that looks so: % is any text, _ any character."""
        part, pattern, *escape = found
        evaluate = part.evaluate
        matches = self._pattern(pattern, self._escape(escape[0]) if escape else "")

        def is_like(values: Values) -> Any:
            value = evaluate(values)
            return matches(value) if isinstance(value, str) else None

        return self._part(is_like, part)

    def not_like(self, found: list[Any]) -> Part:
        """Text that does not look so."""
        return self.negation([self.like(found)])

    def _escape(self, token: Token) -> str:
        escape = _unquoted(token)
        if len(escape) != 1 or escape in "%_":
            raise self.refused(
                token.start_pos or 0, "ESCAPE takes one character, and neither % nor _"
            )
        return escape

    def _pattern(self, token: Token, escape: str) -> Callable[[str], bool]:
        """Compile a pattern: runs of characters between `%`, each character a text or any."""
        runs: list[list[str]] = [[]]
        characters = iter(_unquoted(token))
        for character in characters:
            if character == escape:
                escaped = next(characters, None)
                if escaped is None:
                    raise self.refused(token.start_pos or 0, "the pattern ends with its ESCAPE")
                runs[-1].append(re.escape(escaped))
            elif character == "%":
                runs.append([])
            else:
                runs[-1].append("." if character == "_" else re.escape(character))
        return _matcher(runs)

    # Logic of three values.

    def negation(self, found: list[Part]) -> Part:
        """True if something is false."""
        evaluate = found[0].evaluate

        def is_false(values: Values) -> Any:
            value = evaluate(values)
            return not value if isinstance(value, bool) else None

        return self._part(is_false, found[0])

    def both(self, found: list[Part]) -> Part:
        """False if any is false, true if all are true."""
        return self._joined(found, False)

    def either(self, found: list[Part]) -> Part:
        """True if any is true, false if all are false."""
        return self._joined(found, True)

    def _joined(self, found: list[Part], decisive: bool) -> Part:
        evaluates = [part.evaluate for part in found]

        def evaluate(values: Values) -> Any:
            result: bool | None = not decisive
            for each in evaluates:
                value = each(values)
                if value is decisive:
                    return decisive
                if value is not result:
                    result = None
            return result

        return self._part(evaluate, *found)


def _unquoted(token: Token) -> str:
    """Return the text between quotes, of which one stands twice."""
    return token[1:-1].replace(token[0] * 2, token[0])


def _matcher(runs: list[list[str]]) -> Callable[[str], bool]:
    """Match runs of characters with anything between them. Each run is looked for once, at the
    first place that it fits: no pattern takes longer than the text is long, times a run.
    """
    first, *rest = (re.compile("".join(run), re.DOTALL) for run in runs)
    if not rest:
        return lambda text: first.fullmatch(text) is not None
    middle, last, length = rest[:-1], rest[-1], len(runs[-1])

    def matches(text: str) -> bool:
        found = first.match(text)
        for run in middle:
            if found is None:
                return False
            found = run.search(text, found.end())
        place = len(text) - length
        return (
            found is not None and place >= found.end() and last.fullmatch(text, place) is not None
        )

    return matches


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _calculate(combine: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if not (_is_number(one) and _is_number(other)):
        return None
    try:
        result = combine(one, other)
        return float(result) if isinstance(result, int) and abs(result) > INT64 else result
    except (ZeroDivisionError, OverflowError):
        return None


def _divide(one: Any, other: Any) -> Any:
    """Divide as Java does: what is exact stays so, towards zero."""
    if isinstance(one, int) and isinstance(other, int):
        result = abs(one) // abs(other)
        return result if (one < 0) == (other < 0) else -result
    return one / other


def _remainder(one: Any, other: Any) -> Any:
    """What is left of a division towards zero, for exact numbers only."""
    if isinstance(one, int) and isinstance(other, int):
        return one - other * _divide(one, other)
    return None


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": _remainder,
}


def _kept_apart(value: Any) -> Any:
    """Make truth values unequal to 1 and 0."""
    return (value,) if isinstance(value, bool) else value


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return isinstance(one, bool) == isinstance(other, bool)


def _comparison(compare: Callable[[Any, Any], bool], *, orders: bool) -> Callable[[Any, Any], Any]:
    """Make a comparison of like values; truth values have no order."""

    def compared(one: Any, other: Any) -> bool | None:
        if one is None or other is None:
            return None
        if not _are_alike(one, other) or (orders and isinstance(one, bool)):
            return False
        return compare(one, other)

    return compared


_equal = _comparison(operator.eq, orders=False)
_unequal = _comparison(operator.ne, orders=False)
_less = _comparison(operator.lt, orders=True)
_more = _comparison(operator.gt, orders=True)
_most = _comparison(operator.le, orders=True)
_least = _comparison(operator.ge, orders=True)
COMPARISONS = {
    "=": _equal,
    "<>": _unequal,
    "!=": _unequal,
    "<": _less,
    ">": _more,
    "<=": _most,
    ">=": _least,
}
