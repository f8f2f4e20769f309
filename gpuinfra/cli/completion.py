"""`gpuinfra completion`: prints the completion script of a shell, and installs or removes it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import click

from gpuinfra.base.errors import UsageError
from gpuinfra.base.file_errors import naming
from gpuinfra.cli import VARIABLE, cli

BEGIN, END = "# gpuinfra completion: begin", "# gpuinfra completion: end"
"""The lines around what `install` adds to a startup file."""


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Where a shell loads completions from."""

    script: Callable[[], Path]
    """The script file."""
    startup: Callable[[], Path] | None
    """The startup file that loads the script. None if the shell finds the script by its location."""
    load: str = ""
    """Lines for the startup file, with `{script}` as the placeholder for the script path."""


def _home(variable: str, *default: str) -> Path:
    """Return the folder that a variable names, or the default below the home directory."""
    named = os.environ.get(variable, "")
    return Path(named) if Path(named).is_absolute() else Path.home().joinpath(*default)


def _data(name: str) -> Path:
    return _home("XDG_DATA_HOME", ".local", "share") / "gpuinfra" / name


SHELLS = {
    "bash": Shell(
        script=lambda: _data("completion.bash"),
        startup=lambda: Path.home() / ".bashrc",
        load="[ -r {script} ] && . {script}",
    ),
    "zsh": Shell(
        script=lambda: _data("completion.zsh"),
        startup=lambda: _home("ZDOTDIR") / ".zshrc",
        # compdef exists only after compinit, which a startup file without other completions does not call.
        load="(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}\n[ -r {script} ] && . {script}",
    ),
    "fish": Shell(
        script=lambda: _home("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "gpuinfra.fish",
        startup=None,
    ),
}


@click.command("completion")
@click.argument("action", type=click.Choice([*SHELLS, "install", "uninstall"]))
@click.argument("shell", required=False, type=click.Choice(list(SHELLS)))
def command(action: str, shell: str | None) -> int:
    """Print the completion script of a shell, or install or remove it.

    `install` writes the script and, for bash and zsh, a block in the startup file of the shell. `uninstall` removes both. SHELL
    defaults to the shell in $SHELL. To use the script without installing it, run `eval "$(gpuinfra completion bash)"`.
    """
    if action in SHELLS:
        if shell is not None:
            raise UsageError(
                f"SHELL is {shell}, but {action} prints a script; omit SHELL, or run `gpuinfra completion install {shell}`"
            )
        click.echo(script(action))
        return 0
    name = shell or _own_shell()
    changed = install(name) if action == "install" else uninstall(name)
    for line in changed or [f"nothing to change: the completion for {name} is {action}ed"]:
        click.echo(line)
    if changed and action == "install":
        click.echo(f"start a new {name} to use it")
    return 0


def script(shell: str) -> str:
    """Return the completion script of a shell. The script asks the command in the command line for completions."""
    from click.shell_completion import get_completion_class

    from gpuinfra.cli import bash

    bash.use()
    made = get_completion_class(shell)
    assert made is not None
    # `source` also runs the shell to check its version, which fails if the shell is not installed here.
    text = made(cli, {}, "gpuinfra", VARIABLE)
    return str(text.source_template % text.source_vars()).strip()


def install(shell: str) -> list[str]:
    """Write the script and the block in the startup file. Return one line for each file that changed."""
    place, changed = SHELLS[shell], []
    path = place.script()
    if _written(path, script(shell) + "\n"):
        changed.append(f"written: {path}")
    if place.startup:
        startup = place.startup()
        before = _read(startup)
        block = f"{BEGIN}\n{place.load.format(script=quote(str(path)))}\n{END}\n"
        rest = _without_block(before, startup)
        # An unchanged block stays in its place, so that a second installation changes nothing.
        if block not in before and _written(
            startup, f"{rest}{'' if not rest or rest.endswith(chr(10)) else chr(10)}{block}"
        ):
            changed.append(f"changed: {startup}")
    return changed


def uninstall(shell: str) -> list[str]:
    """Remove the script and the block in the startup file. Return one line for each file that changed."""
    place, changed = SHELLS[shell], []
    if place.startup:
        startup = place.startup()
        before = _read(startup)
        rest = _without_block(before, startup)
        if rest != before and _written(startup, rest):
            changed.append(f"changed: {startup}")
    path = place.script()
    if path.is_file():
        path.unlink()
        changed.append(f"removed: {path}")
    return changed


def _own_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError(
            f"SHELL is missing, and $SHELL is {name or 'empty'}; allowed: {', '.join(SHELLS)}; "
            "specify a shell, such as `gpuinfra completion install bash`"
        )
    return name


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not valid UTF-8; save it as UTF-8, and run the command again") from None


def _without_block(text: str, path: Path) -> str:
    """Return the text of a startup file without the block. Raises `UsageError` if the block has no end."""
    lines, kept, inside = text.splitlines(keepends=True), [], False
    for line in lines:
        if line.strip() == BEGIN:
            inside = True
        elif line.strip() == END and inside:
            inside = False
        elif not inside:
            kept.append(line)
    if inside:
        raise UsageError(
            f"{path} contains the line {BEGIN!r} without {END!r}; remove the block, and run the command again"
        )
    return "".join(kept)


def _written(path: Path, text: str) -> bool:
    """Replace a file atomically if its text differs. Symbolic links and permissions are preserved."""
    if path.exists() and _read(path) == text:
        return False
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=target.parent, prefix=f".{target.name}.", encoding="utf-8", delete=False
    ) as file:
        pass
    try:
        with naming(target):
            Path(file.name).write_text(text, encoding="utf-8")
        if target.exists():
            shutil.copymode(target, file.name)
        else:
            Path(file.name).chmod(0o644)
        os.replace(file.name, target)
    except OSError:
        Path(file.name).unlink(missing_ok=True)
        raise
    return True
