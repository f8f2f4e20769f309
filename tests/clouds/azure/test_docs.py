"""The programs in docs/reference/azure.md are short and run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.spec import read_stack
from tests.clouds.azure.models import WITHOUT
from tests.clouds.azure.variants import VARIANTS
from tests.clouds.recorder import record
from tests.clouds.stacks import TODAY

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "azure.md"
LAYERS = re.findall(
    r"```yaml\n(# Pulumi\..*?)```", (PAGE.parents[1] / "guides" / "layers.md").read_text(), flags=re.DOTALL
)
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_the_page_has_a_program_for_nodes_and_one_for_storage() -> None:
    """The page shows both components that are often used alone. `test_recovery.py` tests the program with a second region."""
    assert ["NodePool(" in program for program in PROGRAMS] == [True, False]
    assert ["SharedFilesystem(" in program for program in PROGRAMS] == [False, True]


@pytest.mark.parametrize("program", PROGRAMS, ids=["nodes", "storage"])
def test_a_program_has_at_most_fifteen_lines(program: str) -> None:
    """One component needs a short program."""
    assert len([line for line in program.splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize(
    ("program", "made"),
    [
        (PROGRAMS[0], "azure-native:compute:VirtualMachineScaleSet"),
        (PROGRAMS[1], "azure-native:storagecache:AmlFilesystem"),
    ],
    ids=["nodes", "storage"],
)
def test_a_program_creates_its_component_and_no_network(program: str, made: str) -> None:
    """The program runs as printed and creates nothing that it passes in."""
    recording = record(lambda: exec(compile(program, str(PAGE), "exec"), {}))
    assert len(recording.of(made)) == 1
    others = {one.type for one in recording.custom if one.type.startswith("azure-native:")} - {made}
    allowed = {"managedidentity:UserAssignedIdentity", "authorization:RoleAssignment", "authorization:RoleDefinition"}
    assert others <= {f"azure-native:{one}" for one in allowed}


def test_the_page_states_what_the_models_do_not_cover() -> None:
    """Types without a model are listed, and the number of variants is that of the tests."""
    text = (PAGE.parents[1] / "internals" / "cloud-models.md").read_text()
    assert all("DiagnosticSetting" in kind or kind == "logic:Workflow" for kind in WITHOUT)
    assert "workflows of Logic Apps: their client library is not a test dependency" in text
    assert "diagnostic settings: version 7 of the client library removed them" in text
    assert len(VARIANTS) >= 20


def test_the_layers_on_the_page_are_valid_stacks(tmp_path: Path) -> None:
    """The three files load, have one layer each, refer to each other, and declare the same storage."""
    specs = []
    for text in LAYERS:
        path = tmp_path / text.split()[1].rstrip(":")
        path.write_text(text, encoding="utf-8")
        specs.append(read_stack(path).spec)
    foundation, site, cluster = specs
    assert [plan.layers for plan in (build_plan(spec, TODAY) for spec in specs)] == [
        ("foundation",), ("site",), ("cluster",),
    ]  # fmt: skip
    assert site.use.foundation == cluster.use.foundation == "organization/gpuinfra/azure-foundation"
    assert cluster.use.site == "organization/gpuinfra/azure-site"
    assert foundation.access.evidence_from
    assert cluster.storage == site.storage
