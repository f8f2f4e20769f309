"""What Pulumi's Python SDK tells of each resource, under the real engine."""

from __future__ import annotations

import json
from typing import Any

from gpuinfra.quiet import VARIABLE
from gpuinfra.shipped import shipped

PROGRAM = """
import pulumi
from gpuinfra.quiet import say_less
say_less()
pulumi.ComponentResource("trial:index:Home", "home").register_outputs({})
pulumi.log.debug("of the program")
pulumi.log.info("to be read")
pulumi.log.warn("to be heeded")
"""
HOMES = """
import pulumi

class Home(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("trial:index:Home", name)
        self.register_outputs({})

def home():
    Home("home")

def street():
    home()
"""
HOME_LINE = 10
SDK = "debug: resource registration successful: ty=trial:index:Home"


def test_the_sdk_says_nothing_about_each_resource(stack):
    """Not even `--debug` shows the SDK's messages then, but one that names the variable; other levels are as they were."""
    stack.environment.pop(VARIABLE, None)
    stack.program(PROGRAM)
    code, output = stack.run("preview", "--debug")
    assert code == 0, output
    assert "resource registration" not in output
    assert "of the program" not in output
    assert "debug: the program leaves out the debug messages of Pulumi's Python SDK" in output
    assert f"{VARIABLE}=1 brings them back" in output
    assert "to be read" in output
    assert "warning: to be heeded" in output


def test_the_variable_brings_them_back(stack):
    """With GPUINFRA_DEBUG set, `--debug` shows what the SDK and the program say."""
    stack.environment[VARIABLE] = "1"
    stack.program(PROGRAM)
    code, output = stack.run("preview", "--debug")
    assert code == 0, output
    assert SDK in output
    assert "debug: of the program" in output
    assert "leaves out" not in output


def _made_by(stack) -> dict[str, Any]:
    """The state's row of what the program makes, after an `up` that goes through two functions of a module."""
    (stack.folder / "homes.py").write_text(HOMES)
    stack.program("from gpuinfra.quiet import say_less\nsay_less()\nimport homes\nhomes.street()\n")
    code, output = stack.run("up", "--yes", "--skip-preview")
    assert code == 0, output
    code, output = stack.run("stack", "export")
    assert code == 0, output
    rows = json.loads(output)["deployment"]["resources"]
    return next(one for one in rows if one["type"] == "trial:index:Home")


def test_the_state_keeps_the_line_that_makes_a_resource_and_no_more(stack):
    """Lines of Pulumi's launcher and of the interpreter, with the home directory of whoever ran it, stay out of the state."""
    stack.environment.pop(VARIABLE, None)
    home = _made_by(stack)
    assert home["sourcePosition"].endswith(f"/homes.py#{HOME_LINE}")
    assert [frame["sourcePosition"] for frame in home["stackTrace"]] == [home["sourcePosition"]]


def test_the_variable_brings_whole_traces_back(stack):
    """With GPUINFRA_DEBUG set, the state names every line on the way."""
    stack.environment[VARIABLE] = "1"
    home = _made_by(stack)
    lines = [str(frame.get("sourcePosition")) for frame in home["stackTrace"]]
    assert lines[0] == home["sourcePosition"]
    assert any("/homes.py" in line for line in lines[1:])
    assert any("asyncio" in line for line in lines)


def test_the_shipped_program_is_quiet_from_its_first_line(stack):
    """The program of the stacks says so before it reads what is declared."""
    stack.environment.pop(VARIABLE, None)
    stack.program(f"import runpy\nrunpy.run_path({str(shipped('stacks'))!r}, run_name='__main__')\n")
    code, output = stack.run("preview", "--debug")
    assert code != 0
    assert "declares no cluster" in output
    assert "the program leaves out the debug messages" in output
    assert "resource registration" not in output
