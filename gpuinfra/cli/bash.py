"""Completion in bash of words with colons and equals signs, such as `node:gpu-1:gpu-missing`.

Bash splits the command line also at these characters (`COMP_WORDBREAKS`), and completes only the text after the last one. The script of
click passes these pieces as words, so `--fault node:g` would be completed as if `g` were a word of its own.
"""

from __future__ import annotations

import os
from typing import ClassVar

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

# The text of a word up to its last break is already in the line, so bash must not insert it again.
_SCRIPT = r"""
%(complete_func)s() {
    local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}" breaks="${COMP_WORDBREAKS//[^:=]/}"
    local word="${line##*[[:space:]]}" kept="" reply type value
    [[ $breaks && $word == *[$breaks]* ]] && kept="${word%%"${word##*[$breaks]}"}"

    for reply in $(env COMP_WORDS="$line" %(complete_var)s=bash_complete "$1"); do
        IFS=',' read -r type value <<< "$reply"
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain)
                COMPREPLY+=("${value#"$kept"}")
                [[ $value == *[:=] ]] && compopt -o nospace
                ;;
        esac
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """The script for bash, and the words of the line up to the cursor."""

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words of the command before the current word, and the current word."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        return (words, "") if not words or line[-1:].isspace() else (words[:-1], words[-1])


def use() -> None:
    """Make click use this class instead of its own."""
    add_completion_class(Bash)
