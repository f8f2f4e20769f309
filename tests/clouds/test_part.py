"""Parts are no nodes of a stack's tree, and what older states hold under them is found again."""

from __future__ import annotations

import pulumi

from gpuinfra.clouds.resource_group import Part, inside
from tests.clouds.recorder import Recording, Registered, record


class _Thing(pulumi.CustomResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("lab:index:Thing", name, {}, opts)


class _Whole(pulumi.ComponentResource):
    def __init__(self, name: str, *after: pulumi.Resource) -> None:
        super().__init__("lab:index:Whole", name, None, None)
        part = Part("lab:index:Half", f"{name}-half", pulumi.ResourceOptions(parent=self, depends_on=list(after)))
        _Thing(f"{name}-thing", inside(part, pulumi.ResourceOptions(retain_on_delete=True)))
        self.register_outputs({})


def _recorded() -> Recording:
    def program() -> None:
        first = _Thing("first", pulumi.ResourceOptions())
        _Whole("whole", first)
        alone = Part("lab:index:Half", "alone", None)
        _Thing("alone-thing", inside(alone, pulumi.ResourceOptions()))

    return record(program)


def _named(recording: Recording, name: str) -> Registered:
    (found,) = [one for one in recording.resources if one.name == name]
    return found


def test_what_a_part_makes_hangs_on_the_component_around_it() -> None:
    """The part registers nothing itself; its resources are children of its parent and have both their own options and the part's."""
    recording = _recorded()
    thing = _named(recording, "whole-thing")
    assert thing.parent == _named(recording, "whole").urn
    assert thing.depends_on == (_named(recording, "first").urn,)
    assert thing.retained
    assert not [one for one in recording.resources if one.type == "lab:index:Half"]


def test_a_part_outside_of_a_component_hangs_its_resources_on_the_stack() -> None:
    """A program may use a part alone; nothing is around its resources but the stack."""
    recording = _recorded()
    assert _named(recording, "alone-thing").parent.split("::")[2] == "pulumi:pulumi:Stack"


def test_a_resource_is_known_by_the_name_that_it_had_under_a_component() -> None:
    """States of before hold the resource as the child of a component of the part's name, inside one or alone."""
    recording = _recorded()
    (once,) = _named(recording, "whole-thing").once
    assert once.endswith("lab:index:Whole$lab:index:Half$lab:index:Thing::whole-thing")
    (alone,) = _named(recording, "alone-thing").once
    assert alone.endswith("::gpuinfra::lab:index:Half$lab:index:Thing::alone-thing")
