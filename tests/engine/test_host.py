"""The language host with the real engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

THING = """
import pulumi

class Home(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("trial:index:Home", name)
        self.thing = pulumi.CustomResource(
            "tiny:index:Thing", "thing", {"size": SIZE, "pid": None}, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

pulumi.export("pid", Home("home").thing.pid)
"""


def test_second_up_changes_nothing(stack):
    """A program with configuration, a secret and a plain output is unchanged in the second `up`."""
    stack.program(
        "import pulumi\n"
        "config = pulumi.Config()\n"
        "pulumi.export('word', config.require('word'))\n"
        "pulumi.export('hidden', config.require_secret('hidden'))\n"
    )
    assert stack.run("config", "set", "word", "salt")[0] == 0
    assert stack.run("config", "set", "--secret", "hidden", "pepper")[0] == 0
    code, output = stack.up()
    assert code == 0, output
    assert "pepper" not in output
    code, output = stack.up()
    assert code == 0, output
    assert "1 unchanged" in output
    code, output = stack.run("stack", "output", "--json", "--show-secrets")
    assert json.loads(output) == {"word": "salt", "hidden": "pepper"}


def test_preview_is_a_dry_run(stack):
    """In a preview, the program sees a dry run, and no state is written."""
    stack.program("import pulumi\npulumi.export('dry', pulumi.runtime.is_dry_run())\n")
    code, output = stack.run("preview")
    assert code == 0, output
    assert "dry: true" in output
    assert stack.run("stack", "output", "--json")[1].strip() == "{}"


def test_error_of_the_program_is_shown_once(stack):
    """The traceback starts at the program and is shown once, without output of the host."""
    stack.program("def choose():\n    raise LookupError('no such machine')\nchoose()\n")
    code, output = stack.up()
    assert code != 0
    diagnostics = output.partition("Diagnostics:")[2]
    assert diagnostics.count("Traceback (most recent call last)") == 1
    assert diagnostics.count("LookupError: no such machine") == 1
    assert "pulumi-language-python" not in output
    assert "goroutine" not in output
    assert "exit code" not in output


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(3)", "Program exited with non-zero exit code: 3"),
        ("import pulumi\nraise pulumi.RunError('a plain message')", "error: a plain message"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "Program ended early: signal: killed"),
    ],
)
def test_other_failures_of_a_program_are_described(stack, program, message):
    """An exit code, a RunError and a signal fail the update with a message."""
    stack.program(program)
    code, output = stack.up()
    assert code != 0
    assert message in output


def test_virtualenv_option_selects_the_python(stack, tmp_path):
    """The program runs with the Python of `virtualenv`, an absolute path or relative to the project."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "own"], check=True)
    packages = next(Path(folder) for folder in sys.path if folder.endswith("site-packages"))
    (site,) = tmp_path.glob("own/lib/python3*/site-packages")
    (site / "borrowed.pth").write_text(f"{packages}\n")
    stack.program("import pulumi, sys\npulumi.export('prefix', sys.prefix)\n")
    for option in (str(tmp_path / "own"), "own"):
        stack.project(options={"virtualenv": option})
        code, output = stack.up()
        assert code == 0, output
        assert f'prefix: "{tmp_path / "own"}"' in output or "1 unchanged" in output


def test_missing_virtualenv_is_reported_with_a_hint(stack, tmp_path):
    """The error names the missing virtual environment and the commands that create it."""
    stack.project(options={"virtualenv": "nowhere"})
    code, output = stack.up()
    assert code != 0
    assert str(tmp_path / "nowhere") in output
    assert "-m venv" in output
    assert "Traceback" not in output


def test_invalid_option_is_reported_with_the_allowed_values(stack):
    """The error for an unknown toolchain lists the allowed ones."""
    stack.project(options={"toolchain": "conda"})
    code, output = stack.up()
    assert code != 0
    assert "runtime option toolchain is conda; allowed: pip, poetry, uv, auto" in output


def test_about_shows_the_python(stack):
    """`pulumi about` shows the Python of the programs and the installed packages."""
    code, output = stack.run("about", "--json")
    assert code == 0, output
    about = json.loads(output[output.index("{") :])
    assert Path(about["runtime"]["executable"]) == Path(sys.executable)
    assert about["runtime"]["version"].startswith("3.")
    assert "pytest" in {one["name"].split("-")[0] for one in about["dependencies"]}
    assert "aws" in {one["name"] for one in about["plugins"]}


def test_plugin_in_python_serves_its_resources(stack):
    """A provider in a Python folder creates, updates and deletes resources, and ends with the engine."""
    stack.program(THING.replace("SIZE", "7"))
    code, output = stack.up()
    assert code == 0, output
    assert "3 created" in output.replace("+ ", "")
    pid = int(json.loads(stack.run("stack", "output", "--json")[1])["pid"])
    assert not Path(f"/proc/{pid}").exists()
    stack.program(THING.replace("SIZE", "8"))
    code, output = stack.up()
    assert code == 0, output
    assert "1 updated" in output.replace("~ ", "")
    code, output = stack.run("refresh", "--yes", "--skip-preview")
    assert code == 0, output
    code, output = stack.run("destroy", "--yes", "--skip-preview")
    assert code == 0, output
    assert "3 deleted" in output.replace("- ", "")


def test_error_of_a_plugin_is_shown(stack):
    """The update fails with the message of the plugin."""
    stack.program(THING.replace("SIZE", "-1"))
    code, output = stack.up()
    assert code != 0
    assert "size is negative" in output


def test_import_under_a_component_leaves_a_clean_preview(stack):
    """`pulumi import --file` imports a child of a component and prints Python for it; the next preview has no changes."""
    stack.program(THING.replace("SIZE", "7"))
    resources = [
        {"type": "trial:index:Home", "name": "home", "component": True},
        {"type": "tiny:index:Thing", "name": "thing", "id": "thing-1", "parent": "home"},
    ]
    (stack.folder / "import.json").write_text(json.dumps({"resources": resources}))
    code, output = stack.run("import", "--file", "import.json", "--yes", "--protect=false")
    assert code == 0, output
    assert 'tiny.Thing("thing", size=7' in output
    code, output = stack.run("preview", "--expect-no-changes")
    assert code == 0, output


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_engine(stack, eventually, number):
    """When the engine is killed or interrupted, the host, the program and its children end."""
    stack.program(
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "open('half', 'w').write(f'{os.getppid()} {os.getpid()} {child.pid}')\n"
        "os.rename('half', 'pids')\n"
        "time.sleep(300)\n"
    )
    running = stack.start("up", "--yes", "--skip-preview")
    eventually((stack.folder / "pids").exists)
    pids = [int(text) for text in (stack.folder / "pids").read_text().split()]
    os.kill(running.pid, number)
    output, _ = running.communicate(timeout=300)
    eventually(lambda: not any(alive(pid) for pid in pids))
    assert "Traceback" not in output
    assert running.returncode != 0


def test_program_ends_when_its_host_is_killed(stack, eventually):
    """A program ends with its host, and the engine reports the failure."""
    stack.program(
        "import os, time\n"
        "open('half', 'w').write(f'{os.getppid()} {os.getpid()}')\n"
        "os.rename('half', 'pids')\n"
        "time.sleep(300)\n"
    )
    running = stack.start("up", "--yes", "--skip-preview")
    eventually((stack.folder / "pids").exists)
    host, program = (int(text) for text in (stack.folder / "pids").read_text().split())
    os.kill(host, signal.SIGKILL)
    running.communicate(timeout=300)
    eventually(lambda: not alive(program))
    assert running.returncode != 0


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_background_process_of_a_program_does_not_block_the_engine(stack):
    """`up` does not wait for a background process that keeps the output open."""
    stack.program(
        "import subprocess, pulumi\n"
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "pulumi.export('pid', child.pid)\n"
    )
    started = time.monotonic()
    code, output = stack.up()
    assert code == 0, output
    assert time.monotonic() - started < 250
    pid = int(json.loads(stack.run("stack", "output", "--json")[1])["pid"])
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_missing_typechecker_is_reported_with_a_hint(stack, tmp_path):
    """A configured typechecker that is not installed fails the update before the program runs."""
    stack.project(options={"virtualenv": sys.prefix, "typechecker": "mypy"})
    stack.program("open('ran', 'w').close()\n")
    code, output = stack.up()
    assert code != 0
    assert "the typechecker mypy is not installed" in output
    assert not (tmp_path / "ran").exists()


def test_sdk_of_a_package_is_generated(stack, tmp_path):
    """`pulumi package gen-sdk` writes an importable Python package from a schema."""
    schema = {
        "name": "tiny",
        "version": "1.0.0",
        "resources": {"tiny:index:Thing": {"inputProperties": {"size": {"type": "integer"}}}},
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    code, output = stack.run("package", "gen-sdk", "schema.json", "--language", "python", "--out", "sdk")
    assert code == 0, output
    metadata = tmp_path / "sdk" / "python" / "pulumi_tiny-1.0.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pulumi_tiny\nVersion: 1.0.0\n")  # as if it were installed
    program = "import pulumi_tiny; print(pulumi_tiny.Thing.__name__, pulumi_tiny.ThingArgs(size=3).size)"
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={"PYTHONPATH": str(tmp_path / "sdk" / "python")},
        capture_output=True,
        text=True,
    )
    assert answer.stdout == "Thing 3\n", answer.stderr


def test_project_is_converted_to_python(stack, tmp_path):
    """`pulumi convert` writes a Python project with a program."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "Pulumi.yaml").write_text("name: converted\nruntime: python\n")
    (source / "main.pp").write_text('output word { value = "salt" }\n')
    arguments = ["convert", "--from", "pcl", "--cwd", str(source), "--language", "python", "--generate-only"]
    code, output = stack.run(*arguments, "--out", str(tmp_path / "made"))
    assert code == 0, output
    assert 'pulumi.export("word", "salt")' in (tmp_path / "made" / "__main__.py").read_text()
