"""The CIS controls that concern what the components make, asked of every shipped stack's resources."""

from __future__ import annotations

import copy

import pytest

from tests.clouds.controls import aws, azure, gcp
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of, shipped_stacks

CLOUDS = {"aws": aws, "azure": azure, "gcp": gcp}
WHOLE = {"aws": "aws-p4d", "azure": "azure-ndv5", "gcp": "gcp-a3mega"}
STACKS = [(cloud, stack) for cloud in CLOUDS for stack in shipped_stacks(cloud)]
CASES = [(cloud, number) for cloud, module in CLOUDS.items() for number in module.CONTROLS]


@pytest.mark.parametrize(("cloud", "stack"), STACKS, ids=[stack for _, stack in STACKS])
def test_shipped_stacks_pass_all_controls(cloud: str, stack: str) -> None:
    """No resource violates a control, except for the exceptions with a reason."""
    recording, module = recording_of(stack), CLOUDS[cloud]
    found = [
        f"CIS {number}: {text}"
        for number, control in module.CONTROLS.items()
        for text in control.ask(recording)
        if not any(number == of and text.split()[0].endswith(name) for of, name in module.EXCEPTIONS)
    ]
    assert found == []


@pytest.mark.parametrize(("cloud", "number"), CASES, ids=[f"{cloud}-{number}" for cloud, number in CASES])
def test_a_violation_is_found(cloud: str, number: str) -> None:
    """Each control reports a resource that is changed to violate it."""
    whole, control = recording_of(WHOLE[cloud]), CLOUDS[cloud].CONTROLS[number]
    before = set(control.ask(whole))
    spoilt = Recording(copy.deepcopy(whole.resources), whole.outputs, whole.calls)
    control.spoil(spoilt)
    assert set(control.ask(spoilt)) - before


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_control_is_checked_or_has_a_reason(cloud: str) -> None:
    """No control is in both lists, each has a text, and each exception matches a reported resource."""
    module = CLOUDS[cloud]
    assert not set(module.CONTROLS) & set(module.LEFT_OUT)
    assert all(module.LEFT_OUT.values())
    assert all(control.subject for control in module.CONTROLS.values())
    for (number, name), why in module.EXCEPTIONS.items():
        assert why
        told = [text for stack in shipped_stacks(cloud) for text in module.CONTROLS[number].ask(recording_of(stack))]
        assert any(text.split()[0].endswith(name) for text in told), (number, name)
