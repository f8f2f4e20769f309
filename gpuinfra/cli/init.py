"""`gpuinfra init`: prompts for the properties of a new cluster, or reads them from options, and writes its stack file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
    from gpuinfra.reference.fields import FieldHelp

BACK, HELP, SKIP = "<", "?", "skip"
"""Answers that are no values."""
REQUIRED = ("cloud", "region", "machine")
"""Options without a default."""


@click.command("init")
@click.option("--name", help="Name of the stack and of the cluster. Default: train.")
@click.option("--cloud", help="Cloud of the cluster.")
@click.option(
    "--project",
    help="Project of the cluster (Google Cloud). Default: none, which is the project of the Pulumi provider.",
)
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
    "--recipients",
    metavar="EMAIL[,EMAIL]...",
    help="Recipients of the alerts when the budget is exceeded. Default: none.",
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

    wizard = _Wizard(answers=answers, given=given, asks=asks, check_path=check_path)
    skipped: dict[str, Finding] = {}
    if asks:
        click.echo(f"Enter accepts the default in brackets, {BACK} returns to the previous question, {HELP} explains the field, "
                   "and Ctrl-C ends without writing.")  # fmt: skip
    while True:
        wizard.answer_all()
        for text in values:
            answers.set(*set_value(text))
        if _complete(answers, asks, skipped):
            break
        wizard.back()
    path = path_of()
    # The stack file is replaced only if it is the file that existed when you answered with its name.
    stack_file = stack_file if stack_file and stack_file.path == path else target(path, force=force)
    return write_stack(answers, path, stack_file, confirm=asks, skipped=tuple(skipped))


def write_stack(
    answers: StackAnswers, path: Path, stack_file: FileVersion, *, confirm: bool = False, skipped: Sequence[str] = ()
) -> int:
    """Check the new stack, write its file and the project that it requires, and print the next commands. Returns the exit code.

    `skipped` are fields that the user adds to the file later.
    """
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
    if report.cost is not None:
        click.echo(f"\nprice: {total(report.cost)}")
    elif not skipped:
        return 1
    names = [str(file.path) for file in files]
    if confirm and not click.confirm(f"write {', '.join(names)}?", default=True):
        click.echo("nothing was written")
        return 0
    write_all([*((target(file.path, force=False), file.text) for file in files[:-1]), (stack_file, files[-1].text)])
    for name in names:
        click.echo(f"written: {name}")
    for name in skipped:
        click.echo(f"missing in {path}: {name}; `gpuinfra explain {name}` describes it", err=True)
    _show_next(path, answers)
    return 0


def check_complete(answers: StackAnswers) -> None:
    """Raise `SpecError` with the errors in the declaration. Their hints name `--set`."""
    if errors := answers.errors():
        raise SpecError([_settable(error) for error in errors])


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


@dataclass
class _Wizard:
    """The questions that were asked in the terminal, so that the user can go back."""

    answers: StackAnswers
    given: dict[str, Any]
    """Values of the options."""
    asks: bool
    check_path: Callable[[], None]
    """Checks the file that the name determines."""
    at: int = 0
    """Number of the next question."""
    asked: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Number of each question that was asked, and the declaration before its answer."""

    def back(self) -> None:
        """Return to the previous question that was asked."""
        if self.asked:
            self.at, self.answers.declaration = self.asked.pop()
        else:
            click.echo("there is no earlier question", err=True)

    def answer_all(self) -> None:
        """Answer each question from its option, from a prompt, or with its default."""
        from gpuinfra.new_stack.answers import NO_STORAGE, QUESTIONS

        if NO_STORAGE in self.given["storage"] and len(self.given["storage"]) > 1:
            raise UsageError(
                f"--storage {NO_STORAGE} cannot be combined with other values; remove --storage {NO_STORAGE} or the other values"
            )
        questions = list(QUESTIONS.values())
        while self.at < len(questions):
            before = self.answers.copy().declaration
            if not self._answer(questions[self.at], before):
                self.back()
                continue
            self.at += 1

    def _answer(self, question: WizardQuestion, before: dict[str, Any]) -> bool:
        """Answer one question. False if the user goes back."""
        option, answers = question.option, self.answers
        value = self.given[option]
        texts = value if isinstance(value, tuple) else () if value is None else (value,)
        check = self.check_path if option == "name" else None
        if texts:
            if not question.applies(answers):
                raise UsageError(f"--{option} does not apply to {answers.cloud}; remove it")
            for text in texts:
                _apply(question, answers, text)
        elif not question.applies(answers) or option == "zone":
            return True
        elif self.asks:
            if not _ask(question, answers, check):
                return False
            self.asked.append((self.at, before))
            return True
        else:
            default = None if option in REQUIRED else _choices(option, answers).default
            if default is None:
                raise _missing(option, answers)
            _apply(question, answers, default)
        if check:
            check()
        return True


def _choices(option: str, answers: StackAnswers) -> Choices:
    from gpuinfra.new_stack.choices import choices

    return choices(option, answers)


def _apply(question: WizardQuestion, answers: StackAnswers, text: str) -> None:
    """Add an answer to the declaration. Raises `SpecError` with the errors in the answer."""
    question.apply(answers, text)
    if problems := question.problems(answers):
        raise SpecError(problems)


def _missing(option: str, answers: StackAnswers) -> UsageError:
    from gpuinfra.new_stack.answers import EXAMPLES
    from gpuinfra.spec.messages import listed

    allowed = listed(list(_choices(option, answers).values), 60)
    example = f", such as {EXAMPLES[f'--{option}']}" if f"--{option}" in EXAMPLES else ""
    return UsageError(
        f"--{option} is missing; allowed: {allowed}; specify --{option}{example}, or run `gpuinfra init` in a terminal, which prompts for it"
    )


def _ask(question: WizardQuestion, answers: StackAnswers, check: Callable[[], None] | None) -> bool:
    """Prompt until the answer has no errors. A number selects a row of the table. False if the user goes back."""
    proposals = _choices(question.option, answers)
    click.echo(f"\n{question.title}")
    _show(proposals)
    before = answers.copy().declaration
    while True:
        text = click.prompt(question.option, default=proposals.default, prompt_suffix=": ").strip()
        if text == BACK:
            return False
        if text == HELP:
            _show_help(question.fields, answers)
            continue
        if text.isdigit() and 1 <= int(text) <= len(proposals.rows):
            text = proposals.values[int(text) - 1]
        try:
            if question.option == "capacity" and (text := _with_fields(text, answers)) == BACK:
                continue
            _apply(question, answers, text)
            if check:
                check()
        except GpuinfraError as problem:
            click.echo(str(problem), err=True)
            answers.declaration = before
            before = answers.copy().declaration
        else:
            return True


def _show_help(fields: Sequence[FieldHelp], answers: StackAnswers) -> None:
    """Print the meaning, the limits and an example of the field that an answer sets."""
    for entry in fields:
        if entry.tag != "cloud" or answers.cloud in ("", *entry.kinds):
            click.echo("\n".join(entry.lines()))


def _show(proposals: Choices) -> None:
    from gpuinfra.report.tables import Column, Table, text

    if not proposals.rows:
        if proposals.note:
            click.echo(f"  {proposals.note}")
        return
    columns = [
        "",
        *(
            Column(title, wrap=title in proposals.wrapped, optional=title in proposals.optional)
            for title in proposals.columns
        ),
    ]
    rows = [(str(number), *row) for number, row in enumerate(proposals.rows, 1)]
    for line in text(Table(columns, rows), indent=2):
        click.echo(line)


def _with_fields(text: str, answers: StackAnswers) -> str:
    """Prompt for the fields that a kind of capacity requires and the answer does not contain. Returns `<` if the user goes back to the kind."""
    from gpuinfra.new_stack.answers import entry_of, needed_fields
    from gpuinfra.reference.fields import all_fields

    entry = entry_of("--capacity", text)
    for name in needed_fields(str(entry["kind"])):
        if name in entry or (name == "id" and "group_arn" in entry):
            continue
        fields = [one for one in all_fields()[f"pools.capacity.{name}"] if entry["kind"] in one.kinds]
        click.echo(fields[0].meaning)
        while (value := click.prompt(name, prompt_suffix=": ").strip()) in (HELP, SKIP):
            if value == HELP:
                _show_help(fields, answers)
            else:
                click.echo(
                    f"{name} cannot be skipped: {entry['kind']} capacity requires it; {BACK}: another kind of capacity"
                )
        if value == BACK:
            return BACK
        text = f"{text},{name}={value}"
    return text


def _complete(answers: StackAnswers, asks: bool, skipped: dict[str, Finding]) -> bool:
    """Prompt for the fields that the answers require, such as the registry of a machine type. Without a terminal, they are errors.

    `skipped` gets the findings about fields that the user adds to the file later. False if the user goes back.
    """
    from gpuinfra.reference.fields import all_fields

    asked: set[str] = set()
    while errors := [error for error in answers.errors() if error.path not in skipped]:
        finding = errors[0]
        documented = finding.path in all_fields() and (answers.get(tuple(finding.path.split("."))) is None)
        if not asks or not (documented or finding.path in asked):
            raise SpecError([_settable(error) for error in errors])
        click.echo("", err=True)
        click.echo(colored(finding), err=True)
        asked.add(finding.path)
        fields = all_fields().get(finding.path, ())
        for entry in fields[:1]:
            click.echo(
                f"example: {entry.example}; {SKIP}: write the file without this field, and add it before you deploy"
            )
        text = click.prompt(finding.path, prompt_suffix=": ").strip()
        if text == BACK:
            return False
        if text == HELP:
            _show_help(fields, answers)
        elif text == SKIP:
            skipped[finding.path] = finding
        else:
            try:
                answers.set(*set_value(f"{finding.path}={text}"))
            except GpuinfraError as problem:
                click.echo(str(problem), err=True)
    return True


def _settable(finding: Finding) -> Finding:
    """Return a finding whose hint names `--set`."""
    from gpuinfra.reference.fields import all_fields

    if finding.path not in all_fields():
        return finding
    return replace(finding, hint="; ".join(filter(None, (finding.hint, f"use --set {finding.path}=VALUE"))))


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
