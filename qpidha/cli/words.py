"""Words of the command line for people: how parameters look in help, which word was meant, and what
a shell may complete.

Must not know any command.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from qpidha.model.settings import OPTIONS
from qpidha.model.sources import WORDS

FARTHEST = 2
"""Letters that may be wrong, missing or too many in a word that is recognised."""

# -- help -----------------------------------------------------------------------------------------


def dress(command: Any) -> None:
    """Let help show words in place of Python's types, whole sentences in lists of commands, and
    below such a list the example of its first command.
    """
    for param in command.params:
        if param.param_type_name == "argument":
            _dress_argument(param)
        elif param.metavar is None and not getattr(param, "is_flag", False):
            long = max(param.opts, key=len)
            param.metavar = "N" if _is_number(param) else long.rpartition("-")[2].upper()
    for name in getattr(command, "commands", {}):
        inner = command.commands[name]
        inner.short_help = (inner.help or "").partition("\n\n")[0].replace("\n", " ")
        dress(inner)
        if getattr(inner, "commands", {}):
            example = _example_of(next(iter(inner.commands.values())))
            inner.epilog = "\n\n".join(filter(None, (example, inner.epilog)))


def _example_of(command: Any) -> str:
    """Return the paragraph of a command's help that is an example, or nothing."""
    found = [each for each in (command.help or "").split("\n\n") if each.startswith("Example: ")]
    return " ".join(found[0].split()) if found else ""


def _is_number(param: Any) -> bool:
    kind = param.display_type(None) if hasattr(param, "display_type") else param.type.name
    return kind.strip("<>").removesuffix(" range") in ("int", "integer", "float")


def _dress_argument(param: Any) -> None:
    shown = (param.metavar or param.name.replace("_", "-")).upper()
    shown += "..." if param.nargs != 1 else ""
    text = param.help or ""
    default = param.default
    if isinstance(default, (str, int)) and default:
        text += f"  [default: {default}]"
    param.get_usage_pieces = lambda ctx: [shown if param.required else f"[{shown}]"]
    param.get_help_record = lambda ctx: (shown, text)


# -- mistakes -------------------------------------------------------------------------------------


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was most likely meant, or nothing."""
    distance, found = min((_distance(word, other), other) for other in known)
    return found if distance <= FARTHEST and 2 * distance < len(word) else ""


SAME = (
    ("add", "set", "create", "new", "declare"),
    ("del", "delete", "clear", "remove", "rm"),
    ("list", "ls"),
)
"""Words that mean the same; a group of commands has at most one of each."""


def same(word: str, known: Iterable[str]) -> str:
    """Return the known word that means what this one means, or nothing."""
    return next((other for line in SAME if word in line for other in known if other in line), "")


def _distance(one: str, other: str) -> int:
    """How many letters are to be put in, left out or changed."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, with_letter in enumerate(other, 1):
            cost = before + (letter != with_letter)
            before = row[place]
            row[place] = min(cost, row[place] + 1, row[place - 1] + 1)
    return row[-1]


# -- completion -----------------------------------------------------------------------------------

PROGRAM = "qpid-ha"
Tree = Mapping[str, Sequence[str]]
"""What may follow, by the program and the words of its command so far."""


class Named(NamedTuple):
    """Commands and options of qpid-ha after which names may follow that a broker is asked for, with
    `qpid-ha completion names LINE`.
    """

    commands: Sequence[str]
    options: Sequence[str]


def words_of(command: Any, path: str, common: list[str]) -> dict[str, list[str]]:
    """What may follow a command, and each of its own."""
    options = [
        word
        for param in command.params
        if param.param_type_name == "option"
        for word in param.opts
        if word.startswith("--")
    ]
    inner = getattr(command, "commands", {})
    found = {path: [*inner, *options, *([] if inner else common), "--help"]}
    for name in inner:
        found |= words_of(inner[name], f"{path} {name}", common)
    return found


def words_of_daemon() -> list[str]:
    """List what may follow qpidhad."""
    return [*(f"--{word}" for word in WORDS), *(f"--{name}" for name in OPTIONS)]


def _programs(tree: Tree) -> str:
    return " ".join(path for path in tree if " " not in path)


def _alternatives(words: Sequence[str]) -> str:
    return "|".join(shlex.quote(word) for word in words)


def _bash(tree: Tree, named: Named) -> str:
    rows = "\n".join(
        f"  [{shlex.quote(path)}]={shlex.quote(' '.join(words))}" for path, words in tree.items()
    )
    at, options = _alternatives(named.commands), _alternatives(named.options)
    return f"""declare -gA _qpid_ha_words=(
{rows}
)
_qpid_ha() {{
  local at=${{COMP_WORDS[0]##*/}} word next
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    next="$at $word"
    [ -n "${{_qpid_ha_words[$next]+is}}" ] && at=$next
  done
  COMPREPLY=($(compgen -W "${{_qpid_ha_words[$at]}}" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  [ "${{at%% *}}" = {PROGRAM} ] || return
  local line=${{COMP_LINE:0:COMP_POINT}} name part
  local -a typed
  # A blank behind a backslash belongs to the word.
  [[ $line =~ ([^[:space:]\\]|\\.)*$ ]]
  part=${{BASH_REMATCH[0]}}
  [[ $part = -* ]] && return
  read -ra typed <<< "${{line%"$part"}}"
  part=${{part//\\/}}
  case $at in {at}) ;; *) case ${{typed[${{#typed[@]}}-1]}} in {options}) ;; *) return;; esac;; esac
  while IFS= read -r name; do
    # What stands before a colon or = is a word of its own here, and is there already.
    [[ $name == "$part"* ]] &&
      COMPREPLY+=("$(printf %q "${{name#"${{part%"${{part##*[:=]}}"}}"}}")")
  done < <(qpid-ha completion names "$line" 2>/dev/null)
}}
complete -o default -F _qpid_ha {_programs(tree)}"""


def _zsh(tree: Tree, named: Named) -> str:
    rows = "\n".join(
        f"    {shlex.quote(path)} {shlex.quote(' '.join(words))}" for path, words in tree.items()
    )
    at, options = _alternatives(named.commands), _alternatives(named.options)
    return f"""#compdef {_programs(tree)}
_qpid_ha() {{
  local at=$service word next
  local -A table
  table=(
{rows}
  )
  for word in ${{words[2,CURRENT-1]}}; do
    next="$at $word"
    (( ${{+table[$next]}} )) && at=$next
  done
  compadd -- ${{=table[$at]}}
  [[ $PREFIX = -* || ${{at%% *}} != {PROGRAM} ]] && return
  case $at in {at}) ;; *) case ${{words[CURRENT-1]}} in {options}) ;; *) return;; esac;; esac
  local line="${{(j: :)words[1,CURRENT-1]}} $PREFIX"
  compadd -- ${{(f)"$(qpid-ha completion names "$line" 2>/dev/null)"}}
}}
_qpid_ha "$@\""""


def _fish(tree: Tree, named: Named) -> str:
    lines = []
    for path, words in tree.items():
        program, *before = path.split()
        seen = [f"__fish_seen_subcommand_from {word}" for word in before]
        inner = [word for word in words if not word.startswith("-")]
        if inner:
            unseen = f"not __fish_seen_subcommand_from {' '.join(inner)}"
            seen.append(unseen if before else "__fish_use_subcommand")
        when = f' -n "{"; and ".join(seen)}"' if seen else ""
        no_files = " -f" if program == PROGRAM else ""
        lines.append(f'complete -c {program}{no_files}{when} -a "{" ".join(words)}"')
    first = " ".join(dict.fromkeys(path.split()[1] for path in named.commands))
    when = f"__fish_seen_subcommand_from {first}; or __fish_prev_arg_in {' '.join(named.options)}"
    asked = f"{PROGRAM} completion names (commandline -cp | string collect) 2>/dev/null"
    lines.append(f'complete -c {PROGRAM} -f -n "{when}" -a "({asked})"')
    return "\n".join(lines)


COMPLETIONS: dict[str, Callable[[Tree, Named], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""Shell -> its script."""
