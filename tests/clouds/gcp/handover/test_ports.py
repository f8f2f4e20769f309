"""The members of managed instance groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from gpuinfra.clouds.gcp.handover.ports import COMPUTE, Client, ManagedInstances
from gpuinfra.handover.ports import GroupExpected

GROUP = "projects/p/zones/us-central1-a/instanceGroupManagers/gpu"
TEMPLATE = f"{COMPUTE}projects/p/global/instanceTemplates/gpu-v1"


class Answers:
    """One instance, whose group names its template."""

    def __init__(self, template: str) -> None:
        self._template = template

    def pages(self, method: str, url: str, parameters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Return the pages of a list."""
        if url.endswith("/listManagedInstances"):
            where = f"{COMPUTE}projects/p/zones/us-central1-a/instances/gpu-0001"
            yield {
                "managedInstances": [{"id": "7", "instance": where, "version": {"instanceTemplate": self._template}}]
            }
        else:
            yield {"items": [{"id": "7"}]}


def test_the_template_of_a_member_is_its_name() -> None:
    """Compute Engine adds the unique ID of a template to its address (`selfLinkUnique`), which is not part of its name.

    https://cloud.google.com/compute/docs/reference/rest/v1/instanceTemplates, retrieved 2026-11-28.
    """
    for address in (TEMPLATE, f"{TEMPLATE}?uniqueId=1234567890123456789"):
        instances = ManagedInstances(cast(Client, Answers(address)), COMPUTE)
        (member,) = instances.members([GroupExpected(name="gpu", group=GROUP, count=1)])
        assert (member.template_version, member.zone) == ("gpu-v1", "us-central1-a")
