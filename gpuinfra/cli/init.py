"""`gpuinfra init`: prompts for the properties of a new cluster, or reads them from options, and writes its stack file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import GpuinfraError, SpecError, UsageError
from gpuinfra.cli.options import set_value
from gpuinfra.cli.plan import colored

if TYPE_CHECKING:
    from gpuinfra.base.findings import Finding
    from gpuinfra.base.people_files import FileVersion
    from gpuinfra.new_stack.answers import StackAnswers, WizardQuestion
    from gpuinfra.new_stack.choices import Choices

REQUIRED = ("cloud", "region", "machine")
"""Options without a default."""


@click.command("init")
@click.option("--name", help="Name of the stack and of the cluster. Default: train.")
@click.option("--cloud", help="Cloud of the cluster.")
@click.option("--region", help="Region of the cluster.")
@click.option("--zone", help="Zone of the cluster. Default: a zone that offers the machine type.")
@click.option("--machine", metavar="TYPE", help="Machine type of the nodes. `gpuinfra catalog` lists them.")
@click.option("--count", metavar="N", help="Number of nodes. Default: 1.")
@click.option(
    "--capacity",
    metavar="KIND[,FIELD=VALUE]...",
    help="Capacity kind and its fields, such as reserved,id=ID. Default: on_demand, or spot if on_demand is not offered.",
)
@click.option(
    "--storage",
    multiple=True,
    metavar="KIND[,FIELD=VALUE]...",
    help="File system and its fields, such as lustre,capacity_gib=4800. Use none for no file system. Default: none. Repeatable.",
)
@click.option(
    "--set",
    "values",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set another field of the declaration, such as budget.recipients=[ops@example.com]. Repeatable.",
)
@click.option("--yes", is_flag=True, help="Do not prompt. Use the default of each option that is not specified.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Stack file to write. Default: Pulumi.NAME.yaml in the project's folder for stack files.",
)
@click.option("--force", is_flag=True, help="Replace the stack file if it exists.")
def command(values: tuple[str, ...], yes: bool, output: Path | None, force: bool, **given: Any) -> int:
    """Write the stack file of a new cluster.

    In a terminal, this command prompts for each option that is not specified, and shows the machine types and prices in the catalog.
    Without a terminal, --cloud, --region and --machine are required. The command requires no cloud account or network access and creates no
    resources.

    Outside a Pulumi project, the command also writes Pulumi.yaml and the program __main__.py.
    """
    from gpuinfra.base.day import today
    from gpuinfra.new_stack.answers import StackAnswers
    from gpuinfra.new_stack.files import check_project, find_project, stack_path
    from gpuinfra.region.clone.write import target

    asks, answers = not yes and _is_interactive(), StackAnswers(today=today())
    stack_file: FileVersion | None = None

    def path_of() -> Path:
        return output or stack_path(str(answers.declaration["name"]), find_project(Path.cwd()))

    def check_path() -> None:
        path = path_of()
        if not force and output is None and path.exists():
            raise UsageError(f"{path} exists; use a different --name or --output, or add --force to replace the file")
        read = target(path, force=force)
        if not path.parent.is_dir():
            raise UsageError(
                f"{path} is in a folder that does not exist; create the folder, or use a different --output"
            )
        check_project(find_project(path.parent))
        nonlocal stack_file
        stack_file = read

    _answer_all(answers, given, asks, check_path)
    for text in values:
        answers.set(*set_value(text))
    complete(answers, asks)
    path = path_of()
    # The stack file is replaced only if it is the file that existed when you answered with its name.
    stack_file = stack_file if stack_file and stack_file.path == path else target(path, force=force)
    return write_stack(answers, path, stack_file, confirm=asks)


def write_stack(answers: StackAnswers, path: Path, stack_file: FileVersion, *, confirm: bool = False) -> int:
    """Check the new stack, write its file and the project that it requires, and print the next commands. Returns the exit code."""
    from gpuinfra.base.day import now, today
    from gpuinfra.new_stack.files import files_of
    from gpuinfra.region.clone.write import target, write_all
    from gpuinfra.report.plan_json import report_of
    from gpuinfra.report.plan_text import total
    from gpuinfra.spec.document import parse
    from gpuinfra.spec.load import stack_in

    files = files_of(answers, path)
    report = report_of(stack_in(parse(files[-1].text, str(path)), path), today(), None, now())
    for finding in report.findings:
        # The file is not written yet.
        click.echo(colored(replace(finding, file="", line=None)), err=True)
    if not report.ok or report.cost is None:
        return 1
    click.echo(f"\nprice: {total(report.cost)}")
    names = [str(one.path) for one in files]
    if confirm and not click.confirm(f"write {', '.join(names)}?", default=True):
        click.echo("nothing was written")
        return 0
    write_all([*((target(one.path, force=False), one.text) for one in files[:-1]), (stack_file, files[-1].text)])
    for name in names:
        click.echo(f"written: {name}")
    _show_next(path, answers)
    return 0


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _answer_all(answers: StackAnswers, given: dict[str, Any], asks: bool, check_path: Callable[[], None]) -> None:
    """Answer each question from its option, from a prompt, or with its default. `check_path` checks the file that the name determines."""
    from gpuinfra.new_stack.answers import NO_STORAGE, QUESTIONS

    if NO_STORAGE in given["storage"] and len(given["storage"]) > 1:
        raise UsageError(
            f"--storage {NO_STORAGE} cannot be combined with other values; remove --storage {NO_STORAGE} or the other values"
        )
    for option, question in QUESTIONS.items():
        value = given[option]
        texts = value if isinstance(value, tuple) else () if value is None else (value,)
        if texts:
            for text in texts:
                _apply(question, answers, text)
        elif asks and option != "zone":
            _ask(question, answers, check_path if option == "name" else None)
        elif option in REQUIRED:
            raise _missing(option, answers)
        elif option != "zone":
            default = _choices(option, answers).default
            if default is None:
                raise _missing(option, answers)
            _apply(question, answers, default)
        if option == "name":
            check_path()


def _choices(option: str, answers: StackAnswers) -> Choices:
    from gpuinfra.new_stack.choices import choices

    return choices(option, answers)


def _apply(question: WizardQuestion, answers: StackAnswers, text: str) -> None:
    """Add an answer to the declaration. Raises `SpecError` with the errors in the answer."""
    question.apply(answers, text)
    if found := question.problems(answers):
        raise SpecError(found)


def _missing(option: str, answers: StackAnswers) -> UsageError:
    from gpuinfra.new_stack.answers import EXAMPLES
    from gpuinfra.spec.messages import listed

    allowed = listed(list(_choices(option, answers).values), 60)
    example = f", such as {EXAMPLES[f'--{option}']}" if f"--{option}" in EXAMPLES else ""
    return UsageError(
        f"--{option} is missing; allowed: {allowed}; specify --{option}{example}, or run `gpuinfra init` in a terminal, which prompts for it"
    )


def _ask(question: WizardQuestion, answers: StackAnswers, check: Callable[[], None] | None) -> None:
    """Prompt until the answer has no errors. A number selects a row of the table."""
    found = _choices(question.option, answers)
    click.echo(f"\n{question.title}")
    _show(found)
    before = answers.copy().declaration
    while True:
        text = click.prompt(question.option, default=found.default, prompt_suffix=": ").strip()
        if text.isdigit() and 1 <= int(text) <= len(found.rows):
            text = found.values[int(text) - 1]
        try:
            if question.option == "capacity":
                text = _with_fields(text)
            _apply(question, answers, text)
            if check:
                check()
        except GpuinfraError as problem:
            click.echo(str(problem), err=True)
            answers.declaration = before
            before = answers.copy().declaration
        else:
            return


def _show(found: Choices) -> None:
    from gpuinfra.report.tables import Column, Table, text

    if not found.rows:
        if found.note:
            click.echo(f"  {found.note}")
        return
    columns = ["", *(Column(title, wrap=title in ("GPUs", "note", "effect")) for title in found.columns)]
    rows = [(str(number), *row) for number, row in enumerate(found.rows, 1)]
    for line in text(Table(columns, rows), indent=2):
        click.echo(line)


def _with_fields(text: str) -> str:
    """Prompt for the fields that a kind of capacity requires and the answer does not contain."""
    from gpuinfra.new_stack.answers import entry_of, needed_fields
    from gpuinfra.reference.fields import all_fields

    entry = entry_of("--capacity", text)
    for name in needed_fields(str(entry["kind"])):
        if name in entry or (name == "id" and "group_arn" in entry):
            continue
        click.echo(next(one.meaning for one in all_fields()[f"pools.capacity.{name}"] if entry["kind"] in one.kinds))
        value = click.prompt(name, prompt_suffix=": ").strip()
        text = f"{text},{name}={value}"
    return text


def complete(answers: StackAnswers, asks: bool) -> None:
    """Prompt for the fields that the answers require, such as the registry of a machine type. Without a terminal, they are errors."""
    from gpuinfra.reference.fields import all_fields

    asked: set[str] = set()
    while found := answers.errors():
        finding = found[0]
        known = finding.path in all_fields() and (answers.get(tuple(finding.path.split("."))) is None)
        if not asks or not (known or finding.path in asked):
            raise SpecError([_settable(one) for one in found])
        click.echo("", err=True)
        click.echo(colored(finding), err=True)
        asked.add(finding.path)
        text = click.prompt(finding.path, prompt_suffix=": ").strip()
        try:
            answers.set(*set_value(f"{finding.path}={text}"))
        except GpuinfraError as problem:
            click.echo(str(problem), err=True)


def _settable(finding: Finding) -> Finding:
    """Return a finding whose hint names `--set`."""
    from gpuinfra.reference.fields import all_fields

    if finding.path not in all_fields():
        return finding
    return replace(finding, hint=f"{finding.hint}; use --set {finding.path}=VALUE".removeprefix("; "))


def _show_next(path: Path, answers: StackAnswers) -> None:
    """Print the next commands, and the prerequisites that this machine lacks."""
    from gpuinfra.base.stack_files import stack_argument
    from gpuinfra.clouds import why_not_here
    from gpuinfra.new_stack.files import find_project, program_problem

    stack = stack_argument(path)
    project = find_project(path.parent)
    for problem in (program_problem(project) if project else None, why_not_here(answers.cloud)):
        if problem:
            click.echo(f"missing for a rehearsal or a deployment: {problem}", err=True)
    click.echo("next:")
    click.echo(f"  gpuinfra plan {stack}")
    click.echo(f"  gpuinfra rehearse up {stack}")
