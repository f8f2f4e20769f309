"""A metadata service with user data, and nodes that boot from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuinfra_rehearsal.nodes import Instance, NodeHost, available
from tests.servers import Answering, serve

QUIET_S = 40.0


@dataclass
class Metadata:
    """A metadata service as IMDSv2: every request requires a token."""

    user_data: str = ""
    asked: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip on a system without user namespaces."""
    possible, reason = available()
    if not possible:
        pytest.skip(f"stand-in nodes cannot run here: {reason}")


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    """A metadata service of this test."""
    yield from metadata_service()


def metadata_service() -> Iterator[Metadata]:
    """A metadata service on the loopback interface."""
    service = Metadata()

    class Handler(Answering):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.answer(200, b"token")

        def do_GET(self) -> None:
            _, _, instance, *rest = self.path.split("/")
            service.asked.append("/".join(rest))
            if self.headers.get("X-aws-ec2-metadata-token") != "token":
                self.answer(401, b"")
            elif rest == ["latest", "user-data"]:
                self.answer(200, service.user_data.encode())
            elif rest == ["latest", "meta-data", "instance-id"]:
                self.answer(200, instance.encode())
            else:
                self.answer(404, b"")

    with serve(Handler) as url:
        service.url = url
        yield service


@dataclass
class Nodes:
    """The nodes of one test."""

    host: NodeHost
    metadata: Metadata

    def launch(self, number: int = 1, **values: object) -> str:
        """Launch a node and wait until it has settled."""
        name = f"i-{number:017d}"
        self.host.launch(Instance(**{"id": name, "machine": "p4d.24xlarge", "name": f"gpu-{number}", **values}))  # type: ignore[arg-type]
        self.settle(name)
        return name

    def settle(self, name: str) -> None:
        """Wait until a node has settled."""
        node = self.host._nodes[name]
        wait_for(lambda: node.settled, f"{name} settles", more=lambda: self.host.console(name)[-2000:])

    def run(self, command: str, name: str = "i-00000000000000001", code: int | None = 0) -> str:
        """Output of a shell command on a node."""
        found, output = self.host.run(name, ["/bin/bash", "-c", command])
        assert code is None or found == code, f"{command!r} ended with {found}: {output}"
        return output.strip()

    def resume(self) -> None:
        """Resume the suspended nodes, as the next start of the host does."""
        self.host._call(self.host._restore)

    def stage(self, name: str = "i-00000000000000001") -> str:
        """Stage of a node."""
        return next(status.stage for status in self.host.status() if status.id == name)


def wait_for(
    condition: Callable[[], bool], what: str, seconds: float = QUIET_S, more: Callable[[], str] = lambda: ""
) -> None:
    """Poll until a condition holds; `more` returns details for the failure."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"after {seconds} s still waiting until {what}: {more()}"
        time.sleep(0.03)


@pytest.fixture
def nodes(namespaces: None, metadata: Metadata, tmp_path: Path) -> Iterator[Nodes]:
    """A node host without nodes."""
    host = NodeHost(tmp_path / "rehearsal", endpoint=metadata.url)
    host.start()
    yield Nodes(host, metadata)
    host.close()


@pytest.fixture(scope="module")
def shared(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two plain nodes for all tests of a module, which change them."""
    services = metadata_service()
    service = next(services)
    host = NodeHost(tmp_path_factory.mktemp("shared") / "rehearsal", endpoint=service.url)
    host.start()
    both = Nodes(host, service)
    for number in (1, 2):
        both.launch(number, prebuilt=False)
    yield both
    host.close()
    next(services, None)
