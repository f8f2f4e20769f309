"""Debug messages of Pulumi's Python SDK, under the real engine."""

from __future__ import annotations

from gpuinfra.quiet import VARIABLE
from gpuinfra.shipped import shipped

PROGRAM = """
import pulumi
from gpuinfra.quiet import without_debug_messages
without_debug_messages()
pulumi.ComponentResource("trial:index:Home", "home").register_outputs({})
pulumi.log.debug("of the program")
pulumi.log.info("to be read")
pulumi.log.warn("to be heeded")
"""
SDK = "debug: resource registration successful: ty=trial:index:Home"


def test_the_sdk_says_nothing_about_each_resource(stack):
    """Not even `--debug` shows the SDK's messages then, but one that names the variable; other levels are as they were."""
    stack.environment.pop(VARIABLE, None)
    stack.program(PROGRAM)
    code, output = stack.run("preview", "--debug")
    assert code == 0, output
    assert "resource registration" not in output
    assert "of the program" not in output
    assert f"debug: the program leaves out the debug messages of Pulumi's Python SDK; {VARIABLE}=1" in output
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


def test_the_shipped_program_is_quiet_from_its_first_line(stack):
    """The program of the stacks says so before it reads what is declared."""
    stack.environment.pop(VARIABLE, None)
    stack.program(f"import runpy\nrunpy.run_path({str(shipped('stacks'))!r}, run_name='__main__')\n")
    code, output = stack.run("preview", "--debug")
    assert code != 0
    assert "declares no cluster" in output
    assert "the program leaves out the debug messages" in output
    assert "resource registration" not in output
