"""Draws the topology of a plan: networks, subnets, groups, a node of each pool with its network interfaces, storage, audit trail, and who can reach whom.

The plan becomes nested boxes, and the boxes become an SVG image or a Mermaid flowchart. Both have the same text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted, numbers
from gpuinfra.catalog.records import MachineType
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.connections import NODES
from gpuinfra.plan.model import Group, NetworkPlan, Nic, Plan, PoolPlan, Subnet
from gpuinfra.plan.profile import profile_of
from gpuinfra.report.plan_tables import gpus_of

CARDS = 8
"""Number of network cards that are listed individually if there are more than one more. The remaining cards are only counted."""


LONGEST = 118
"""Maximum number of characters in a line. Longer texts, such as resource IDs on Azure, are cut."""
LONGEST_END = 36
"""Maximum number of characters at each end of an arrow, and on the arrow."""


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """Traffic from one place to another, or in both directions."""

    source: str
    target: str
    text: str
    both_ways: bool = False


@dataclass(frozen=True, kw_only=True)
class Box:
    """A part of the topology."""

    title: str
    lines: tuple[str, ...] = ()
    inner: tuple[Box, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    """Arrows below the lines, one per row. A box has either arrows or inner boxes."""
    kind: str = ""
    """`network`, `subnet`, `nodes`, `node`, `storage`, `audit` or `traffic`, which select the color."""


def boxes(plan: Plan) -> Box:
    """Return the topology of a plan."""
    inner = [*_networks(plan), *_storage(plan), *_existing_storage(plan), *_audit(plan), *_traffic(plan)]
    where = f"{plan.cloud} {plan.region}, {', '.join(plan.zones)}"
    what = f"{counted(plan.nodes, 'node')}, {counted(gpus_of(plan), 'GPU')}"
    return Box(title=plan.name, lines=(where, what), inner=tuple(inner))


def _networks(plan: Plan) -> Iterator[Box]:
    network = plan.network
    drawn: set[str] = set()
    subnets = []
    for subnet in network.subnets if network else ():
        groups = tuple(_group(group) for group in _groups_in(subnet, plan))
        drawn |= {group.title for group in groups}
        role = subnet.role if subnet.network == "main" else f"{subnet.role}, network {subnet.network}"
        lines = tuple(one for one in (subnet.cidr or subnet.existing_id or "", subnet.zone, role) if one)
        subnets.append(Box(title=subnet.name, lines=lines, inner=groups, kind="subnet"))
    left = [group for pool in plan.pools for group in pool.groups if group.name not in drawn]
    inner = (*subnets, *map(_group, left))
    if network or inner:
        title = f"network {network.existing_id}, existing" if network and network.existing_id else "network"
        yield Box(title=title, lines=tuple(_access(network)), inner=inner, kind="network")
    yield from (_node(pool, plan) for pool in plan.pools)
    for own in plan.own_networks:
        lines = tuple(f"{one.name}: {one.cidr}" for one in own.subnets)
        yield Box(title=f"network {own.name}", lines=lines, kind="network")


def _groups_in(subnet: Subnet, plan: Plan) -> Iterator[Group]:
    """Yield the groups whose nodes have their first address in a subnet: the groups in its zone, or all groups of a pool that names the subnet."""
    if subnet.role != "nodes" or subnet.network != "main":
        return
    for pool in plan.pools:
        yield from (group for group in pool.groups if pool.subnet == subnet.name or group.zone == subnet.zone)


def _access(network: NetworkPlan | None) -> Iterator[str]:
    if network is None:
        yield "from another stack"
        return
    if network.cidr and not network.existing_id:
        yield network.cidr
        yield f"inbound: {network.inbound or 'none'}"
        yield f"outbound: {'a NAT gateway' if network.egress == 'nat' else 'only cloud service endpoints'}"


def _group(group: Group) -> Box:
    lines = [counted(group.max_count, "node") + f", {group.kind.replace('_', '-')}", group.zone]
    if group.placement_group:
        lines.append(f"placement group {group.placement_group}")
    return Box(title=group.name, lines=tuple(one for one in lines if one), kind="nodes")


def _node(pool: PoolPlan, plan: Plan) -> Box:
    expected = pool.expectation
    lines = [pool.machine]
    if "gpu_name" in expected:
        lines.append(f"{expected['gpus']} x {expected['gpu_name']}")
    machine = profile_of(plan.cloud).machines.get(pool.machine)
    if machine and machine.numa_nodes and not machine.numa:
        lines.append(counted(machine.numa_nodes, "NUMA node"))
    lines.append(f"{pool.disk.size_gib} GiB {pool.disk.kind} root disk")
    inner = (*_cards(pool.nics), *(_numa_nodes(machine) if machine else ()))
    return Box(title=f"a node of pool {pool.name}", lines=tuple(lines), inner=inner, kind="node")


def _numa_nodes(machine: MachineType) -> Iterator[Box]:
    """Yield one box for each NUMA node with its GPUs and fabric devices, for machine types for which the catalog lists them."""
    fabric = machine.fabric.provider if machine.fabric else ""
    for index, numa in enumerate(machine.numa):
        gpus, devices = numbers(numa.gpus), numbers(numa.fabric)
        yield Box(title=f"NUMA node {index}", lines=(f"GPUs {gpus}", f"{fabric} devices {devices}"))


def _cards(nics: Sequence[Nic]) -> Iterator[Box]:
    """Yield one box for each network card. If there are more than nine, the cards after the first eight are one box."""
    cards: dict[int, list[Nic]] = {}
    for nic in nics:
        cards.setdefault(nic.card, []).append(nic)
    shown = len(cards) if len(cards) <= CARDS + 1 else CARDS
    for card, nics_of_card in list(cards.items())[:shown]:
        yield Box(title=f"card {card}", lines=tuple(_nic(nic) for nic in nics_of_card))
    rest = [nic for found in list(cards.values())[shown:] for nic in found]
    if rest:
        counts = Counter(nic.kind for nic in rest)
        text = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        yield Box(title=counted(len(cards) - CARDS, "more card"), lines=(text,))


def _nic(nic: Nic) -> str:
    return nic.kind if nic.network == "main" else f"{nic.kind}, network {nic.network}"


def _storage(plan: Plan) -> Iterator[Box]:
    for entry in plan.file_systems:
        lines = [
            f"{entry.capacity_gib:,} GiB" if entry.capacity_gib else "",
            f"zone {entry.zone}" if entry.zone else "",
            "mounted by all nodes",
        ]
        if entry.bucket:
            lines.append(f"bucket {entry.bucket}")
        yield Box(title=f"{entry.kind} {entry.mount}", lines=tuple(one for one in lines if one), kind="storage")


def _existing_storage(plan: Plan) -> Iterator[Box]:
    for entry in plan.existing_file_systems:
        yield Box(title=f"{entry.kind} {entry.mount}", lines=("existing", "mounted by all nodes"), kind="storage")


def _audit(plan: Plan) -> Iterator[Box]:
    if plan.pools:
        yield Box(title="evidence bucket", lines=("written by all nodes", "read by the handover"), kind="audit")
    if plan.audit.trail:
        lines = ("the entire account", f"locked for {plan.audit.lock_days} days")
        yield Box(title="audit trail", lines=lines, kind="audit")


def _traffic(plan: Plan) -> Iterator[Box]:
    connections = tuple(dict.fromkeys(cloud_of(plan.cloud).connections(plan)))
    if not connections:
        return
    limited = any(one.source == NODES != one.target for one in connections)
    note = "all other traffic of the nodes is denied" if limited else "in addition to the rules of the network"
    arrows = tuple(
        Arrow(source=one.source, target=one.target, text=one.label, both_ways=one.both_ways) for one in connections
    )
    yield Box(title="who can reach whom", lines=(note,), arrows=arrows, kind="traffic")


def _line(text: str, longest: int = LONGEST) -> str:
    line = one_line(text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def mermaid(plan: Plan) -> str:
    """Return a Mermaid flowchart."""
    return "\n".join(["flowchart TB", *_mermaid(boxes(plan), "n", "    ")]) + "\n"


def _mermaid(box: Box, name: str, indent: str) -> Iterator[str]:
    # Mermaid renders entities such as #quot; as characters (see its flowchart syntax).
    # The title of a subgraph has one line, because Mermaid draws additional lines over the inner boxes.
    parent = bool(box.inner or box.arrows)
    text = (", " if parent else "<br>").join(_entities(line) for line in (box.title, *box.lines))
    if not parent:
        yield f'{indent}{name}["{text}"]'
        return
    yield f'{indent}subgraph {name}["{text}"]'
    for index, inner in enumerate(box.inner):
        yield from _mermaid(inner, f"{name}_{index}", f"{indent}    ")
    yield from _mermaid_arrows(box.arrows, name, f"{indent}    ")
    yield f"{indent}end"


def _mermaid_arrows(arrows: Sequence[Arrow], name: str, indent: str) -> Iterator[str]:
    ends = list(dict.fromkeys(end for one in arrows for end in (one.source, one.target)))
    for index, end in enumerate(ends):
        yield f'{indent}{name}_{index}["{_entities(end, LONGEST_END)}"]'
    for arrow in arrows:
        line = "<-->" if arrow.both_ways and arrow.source != arrow.target else "-->"
        source, target = (f"{name}_{ends.index(end)}" for end in (arrow.source, arrow.target))
        yield f'{indent}{source} {line}|"{_entities(arrow.text, LONGEST_END)}"| {target}'


def _entities(text: str, longest: int = LONGEST) -> str:
    return "".join(
        character if character.isalnum() or character in " ./,:-_()" else f"#{ord(character)};"
        for character in _line(text, longest)
    )


WIDTH, PAD, GAP, LINE, LETTER = 940.0, 10.0, 10.0, 17.0, 7.3
"""Pixels: width of the image, space inside and between boxes, height of a line, and width of a letter at 12 pixels."""
NARROW = 340.0
"""Width of the layout for a phone. A row with one wider box is wider, and the page scales the image."""
ROW, END, HEAD = 36.0, 24.0, 8.0
"""Pixels: height of a row with an arrow, height of the boxes at its ends, and length of its head."""


@dataclass
class _Placed:
    """A box with its size and the positions of its inner boxes, relative to its own position."""

    box: Box
    width: float = 0.0
    height: float = 0.0
    inner: list[tuple[float, float, _Placed]] = field(default_factory=list)


def _place(box: Box, limit: float) -> _Placed:
    """Put the inner boxes into rows that are not wider than the limit."""
    text = max(len(_line(line)) for line in (box.title, *box.lines)) * LETTER
    top = PAD + LINE * (1 + len(box.lines)) + (GAP if box.inner else 0)
    placed = _Placed(box=box)
    x, y, row, widest = PAD, top, 0.0, 0.0
    for placed_box in (_place(inner, limit - 2 * PAD) for inner in box.inner):
        if x > PAD and x + placed_box.width + PAD > limit:
            x, y, row = PAD, y + row + GAP, 0.0
        placed.inner.append((x, y, placed_box))
        x, row = x + placed_box.width + GAP, max(row, placed_box.height)
        widest = max(widest, x - GAP)
    arrows = sum(_columns(box.arrows)) + 2 * PAD if box.arrows else 0.0
    placed.width = max(text + PAD + PAD, widest + PAD, arrows)
    placed.height = y + row + PAD if box.inner else top + PAD / 2 + ROW * len(box.arrows)
    return placed


def _columns(arrows: Sequence[Arrow]) -> tuple[float, float, float]:
    """Return the widths of the sources, the arrows and the targets."""
    columns = zip(*((one.source, one.text, one.target) for one in arrows), strict=True)
    source, text, target = (max(len(_line(one, LONGEST_END)) for one in column) * LETTER for column in columns)
    return source + 2 * PAD, text + 2 * HEAD + 2 * PAD, target + 2 * PAD


_STANDALONE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24}text.t{font-weight:600}"
    "rect{fill:#fff;stroke:#8a94a0}rect.network{fill:#f3f6fa}rect.subnet{fill:#e7eef7}rect.nodes{fill:#d3e3f5}"
    "rect.node{fill:#f6f1fa}rect.storage{fill:#e8f5ea}rect.audit{fill:#fff5d6}"
    "rect.traffic{fill:#f3f6fa}line.arrow{stroke:#56616f}polygon.arrow{fill:#56616f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ee}rect{fill:#0f1216;stroke:#56616f}rect.network{fill:#171b21}"
    "rect.subnet{fill:#1c2530}rect.nodes{fill:#22364c}rect.node{fill:#241c2b}rect.storage{fill:#12301c}rect.audit{fill:#35290d}"
    "rect.traffic{fill:#171b21}line.arrow{stroke:#9aa6b5}polygon.arrow{fill:#9aa6b5}}"
)
"""Colors of a standalone image, for light and dark pages. The colors of a page are in its stylesheet."""


def svg(plan: Plan) -> str:
    """Return an SVG image with its own colors, for light and dark pages."""
    root = _place(boxes(plan), WIDTH)
    size = f'width="{root.width + 2:.0f}" height="{root.height + 2:.0f}"'
    return _image(plan, root, f"{size}><style>{_STANDALONE}</style>")


def page_svg(plan: Plan) -> str:
    """Return the image for a page in a wide and in a narrow layout. The page's stylesheet selects one of them and defines the
    colors, because the page's policy allows no other styles."""
    content = boxes(plan)
    wide, narrow = _place(content, WIDTH), _place(content, NARROW)
    narrow = _place(content, narrow.width)  # the other rows can be as wide as the widest box
    return _image(plan, wide, 'class="diagram wide">') + _image(plan, narrow, 'class="diagram narrow">')


def _image(plan: Plan, root: _Placed, end: str) -> str:
    label = escape(f"topology of {plan.name}", quote=True)
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {root.width + 2:.0f} {root.height + 2:.0f}" role="img" aria-label="{label}"'
    return "\n".join([f"{start} {end}", *_draw(root, 1.0, 1.0), "</svg>"]) + "\n"


def _draw(placed: _Placed, x: float, y: float) -> Iterator[str]:
    box = placed.box
    kind = f' class="{box.kind}"' if box.kind else ""
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{placed.width:.1f}" height="{placed.height:.1f}" rx="6"{kind}/>'
    for number, line in enumerate((box.title, *box.lines), 1):
        bold = ' class="t"' if number == 1 else ""
        text = escape(_line(line))
        yield f'<text x="{x + PAD:.1f}" y="{y + LINE * number:.1f}"{bold}>{text}</text>'
    for left, top, inner in placed.inner:
        yield from _draw(inner, x + left, y + top)
    top = y + PAD / 2 + LINE * (1 + len(box.lines))
    for number, arrow in enumerate(box.arrows):
        yield from _draw_arrow(arrow, _columns(box.arrows), x + PAD, top + ROW * number)


def _draw_arrow(arrow: Arrow, columns: tuple[float, float, float], x: float, y: float) -> Iterator[str]:
    """Draw a row: the source, an arrow with the text above its line, and the target."""
    start, end = x + columns[0], x + columns[0] + columns[1]
    middle = y + (ROW - END) + END / 2
    for left, width, text in ((x, columns[0], arrow.source), (end, columns[2], arrow.target)):
        yield f'<rect x="{left:.1f}" y="{middle - END / 2:.1f}" width="{width:.1f}" height="{END:.1f}" rx="4"/>'
        yield f'<text x="{left + PAD:.1f}" y="{middle + 4:.1f}">{escape(_line(text, LONGEST_END))}</text>'
    yield f'<text x="{start + HEAD + PAD:.1f}" y="{middle - 5:.1f}">{escape(_line(arrow.text, LONGEST_END))}</text>'
    yield f'<line x1="{start:.1f}" y1="{middle:.1f}" x2="{end:.1f}" y2="{middle:.1f}" class="arrow"/>'
    for point, back in ((end, -HEAD), (start, HEAD))[: 2 if arrow.both_ways else 1]:
        corners = ((point, middle), (point + back, middle - HEAD / 2), (point + back, middle + HEAD / 2))
        yield f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}" class="arrow"/>'
