"""Diagrams of a plan: what they show, and that boxes and texts stay in their places."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.cli import main
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.report import diagram
from gpuinfra.report.plan_json import plan_report
from gpuinfra.report.plan_page import page
from gpuinfra.spec import parse_spec
from gpuinfra.spec.load import find_stack
from tests.clouds.stacks import TODAY, shipped_stacks, spec_of
from tests.rules.cases import declaration, lustre

SVG = "{http://www.w3.org/2000/svg}"
STACKS = [stack for cloud in CLOUDS for stack in shipped_stacks(cloud)]
LETTER = 7.23
"""Pixels of a letter at 12 pixels in Menlo and DejaVu Sans Mono, the widest of the fonts (1,233 of 2,048 units)."""


def planned(stack: str) -> Plan:
    """The plan of a shipped stack."""
    return build_plan(spec_of(stack), TODAY)


def texts(plan: Plan) -> list[str]:
    """All texts of the image."""
    return [str(one.text) for one in ElementTree.fromstring(diagram.svg(plan)).iter(f"{SVG}text")]


@pytest.mark.parametrize("stack", STACKS)
def test_every_part_of_the_plan_is_drawn(stack: str) -> None:
    """Each subnet, group, machine type, mount and the audit trail is in the image, and the flowchart has the same texts."""
    plan = planned(stack)
    shown = texts(plan)
    expected = [group.name for pool in plan.pools for group in pool.groups]
    expected += [pool.machine for pool in plan.pools]
    expected += [subnet.name for subnet in (plan.network.subnets if plan.network else ())]
    expected += [f"{entry.kind} {entry.mount}" for entry in plan.file_systems]
    expected += ["audit trail"] if plan.audit.trail else []
    expected += [text for one in cloud_of(plan.cloud).connections(plan) for text in (one.source, one.label, one.target)]
    assert set(expected) <= set(shown)
    for group in (group.name for pool in plan.pools for group in pool.groups):
        assert shown.count(group) == 1, group
    flowchart = diagram.mermaid(plan)
    labels = re.sub(r"#(\d+);", lambda match: chr(int(match[1])), flowchart)
    assert [one for one in shown if one not in labels] == []


@pytest.mark.parametrize("stack", STACKS)
def test_boxes_and_texts_do_not_leave_their_box(stack: str) -> None:
    """A box is inside of its parent, does not touch its neighbors, and is wide enough for its texts. The image has the size of all."""
    root = diagram._place(diagram.boxes(planned(stack)), diagram.WIDTH)
    assert root.width <= diagram.WIDTH + 1

    def checked(placed: diagram._Placed) -> None:
        width = max(min(len(line), diagram.LONGEST) for line in (placed.box.title, *placed.box.lines)) * LETTER
        assert width + diagram.PAD <= placed.width, placed.box
        if placed.box.arrows:
            columns = diagram._columns(placed.box.arrows)
            assert sum(columns) + 2 * diagram.PAD <= placed.width
            for one in placed.box.arrows:
                for text, column in zip((one.source, one.text, one.target), columns, strict=True):
                    assert min(len(text), diagram.LONGEST_END) * LETTER + diagram.PAD <= column
        for x, y, inner in placed.inner:
            assert x >= diagram.PAD
            assert y > diagram.LINE * (1 + len(placed.box.lines))
            assert x + inner.width <= placed.width - diagram.PAD + 0.01
            assert y + inner.height <= placed.height - diagram.PAD + 0.01
            for left, top, other in placed.inner:
                apart = left >= x + inner.width or x >= left + other.width
                assert other is inner or apart or top >= y + inner.height or y >= top + other.height
            checked(inner)

    checked(root)


@pytest.mark.parametrize("stack", ["aws-p4d", "gcp-a3mega", "azure-ndv4"])
def test_nodes_are_in_the_subnet_of_the_nodes(stack: str) -> None:
    """On each cloud, the groups are in the subnet of the nodes, whether subnets belong to a zone or to a region."""
    (network,) = [one for one in diagram.boxes(planned(stack)).inner if one.title == "network"]
    places = {group.title: subnet.title for subnet in network.inner for group in subnet.inner}
    plan = planned(stack)
    assert set(places) == {group.name for pool in plan.pools for group in pool.groups}
    assert plan.network is not None
    assert set(places.values()) <= {subnet.name for subnet in plan.network.subnets if subnet.role == "nodes"}


def test_a_node_shows_its_interfaces_by_card() -> None:
    """A node has one box for each network card with its interfaces. Of ten or more, the cards after the eighth are one box."""
    node = next(one for one in diagram.boxes(planned("aws-p4d")).inner if one.kind == "node")
    assert [(one.title, one.lines) for one in node.inner] == [
        ("card 0", ("interface", "efa-only")),
        *((f"card {number}", ("efa-only",)) for number in (1, 2, 3)),
        ("NUMA node 0", ("GPUs 0, 1, 2, 3", "efa devices 0, 1")),
        ("NUMA node 1", ("GPUs 4, 5, 6, 7", "efa devices 2, 3")),
    ]
    large = next(one for one in diagram.boxes(planned("aws-p5-block")).inner if one.kind == "node")
    assert [(one.title, one.lines) for one in large.inner][-3:] == [
        ("24 more cards", ("24 efa-only",)),
        ("NUMA node 0", ("GPUs 0, 1, 2, 3", "efa devices 0 to 15")),
        ("NUMA node 1", ("GPUs 4, 5, 6, 7", "efa devices 16 to 31")),
    ]
    nine = next(one for one in diagram.boxes(planned("gcp-a3mega")).inner if one.kind == "node")
    assert nine.inner[-1].title == "card 8"
    assert "2 NUMA nodes" in nine.lines


def test_an_arrow_shows_who_can_reach_whom() -> None:
    """Each connection has a row with both ends and its ports, and an arrow head at each end that accepts connections."""
    traffic = next(one for one in diagram.boxes(planned("aws-p4d")).inner if one.kind == "traffic")
    assert traffic.lines == ("all other traffic of the nodes is denied",)
    assert [(one.source, one.text, one.target, one.both_ways) for one in traffic.arrows] == [
        ("nodes", "all traffic", "nodes", True),
        ("nodes", "TCP 80, 443", "internet", False),
        ("nodes", "TCP 988, 1018-1023", "lustre /scratch", True),
    ]
    image = ElementTree.fromstring(diagram.svg(planned("aws-p4d")))
    assert len(list(image.iter(f"{SVG}line"))) == 3
    assert len(list(image.iter(f"{SVG}polygon"))) == 5
    flowchart = diagram.mermaid(planned("aws-p4d"))
    assert '<-->|"TCP 988, 1018-1023"|' in flowchart
    assert ' -->|"TCP 80, 443"|' in flowchart


def test_rules_of_an_existing_network_are_not_shown_as_all_rules() -> None:
    """In an existing network on Google Cloud, the cluster adds rules and does not deny other traffic."""
    traffic = next(one for one in diagram.boxes(planned("gcp-existing-network")).inner if one.kind == "traffic")
    assert traffic.lines == ("in addition to the rules of the network",)


def test_a_site_of_another_stack_has_no_arrows() -> None:
    """The stack that creates the rules draws them."""
    assert [one for one in diagram.boxes(planned("aws-cluster")).inner if one.kind == "traffic"] == []


def test_flowchart_is_closed_and_its_labels_are_plain() -> None:
    """Each subgraph has an end, and no label contains a character that ends it."""
    lines = diagram.mermaid(planned("gcp-a3mega")).splitlines()
    assert lines[0] == "flowchart TB"
    words = [line.split()[0] for line in lines[1:]]
    assert words.count("subgraph") == words.count("end") > 1
    box = r'\s+(subgraph )?n[_0-9]*\["[^"<>\[\]]*(<br>[^"<>\[\]]*)*"\]'
    arrow = r'\s+n[_0-9]* <?-->\|"[^"<>|]*"\| n[_0-9]*'
    for line in lines[1:]:
        if line.strip() != "end":
            assert re.fullmatch(f"{box}|{arrow}", line), line


def test_text_of_a_declaration_stays_text() -> None:
    """Markup in a value of the declaration is shown and not interpreted."""
    evil = '</text><script>alert("1")</script>'
    plan = build_plan(parse_spec(declaration(("aws", {"storage": lustre(bucket=evil)}))), TODAY)
    assert any("<script>" in one for one in texts(plan))
    assert "<script" not in diagram.svg(plan)
    assert "<script" not in diagram.mermaid(plan)


def test_page_contains_the_diagram_without_styles_of_its_own(tmp_path: Path) -> None:
    """The page has a wide and a narrow image with the same boxes. Their colors come from the stylesheet, because the policy of the
    page allows no other style."""
    text = page(plan_report(find_stack("aws-p4d"), TODAY))
    image, narrow, chart = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert "gpu-reserved-0" in image
    assert sorted(re.findall(r">([^<]+)</text>", image)) == sorted(re.findall(r">([^<]+)</text>", narrow))
    assert [int(re.findall(r'viewBox="0 0 (\d+)', one)[0]) < 450 for one in (image, narrow)] == [False, True]
    assert "style" not in image + narrow + chart
    kinds = set(re.findall(r'<rect[^>]* class="(\w+)"', image))
    style = text.partition("</style>")[0]
    assert kinds == {"network", "subnet", "nodes", "node", "storage", "audit", "traffic"}
    assert [one for one in kinds if f".diagram rect.{one}" not in style] == []
    assert [one for one in ("line", "polygon") if f".diagram {one}.arrow" not in style] == []


def test_plan_writes_and_prints_diagrams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan --svg` writes the image, and `plan --mermaid` prints only the flowchart."""
    file = tmp_path / "plan.svg"
    assert main(["plan", "aws-p4d", "--mermaid", "--svg", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == diagram.mermaid(plan_report(find_stack("aws-p4d"), TODAY).plan or planned("aws-p4d"))
    assert f"diagram: {file}" in err
    assert ElementTree.fromstring(file.read_text()).tag == f"{SVG}svg"
    assert main(["plan", "aws-p4d", "--mermaid", "--json"]) == 2
    assert "--mermaid prints only the flowchart" in capsys.readouterr().err


def test_a_declaration_with_errors_has_no_diagram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If the declaration has an error, nothing is printed or written."""
    stack, file = tmp_path / "Pulumi.x.yaml", tmp_path / "plan.svg"
    stack.write_text(find_stack("aws-p4d").read_text().replace("p4d.24xlarge", "p4d.24xlrage"))
    assert main(["plan", str(stack), "--mermaid", "--svg", str(file)]) == 1
    assert capsys.readouterr().out == ""
    assert not file.exists()
