from __future__ import annotations

import json
import random

import pytest

from gpuinfra.node import nvsmi
from gpuinfra.node.judge import judge, verdict
from gpuinfra.node.outcome import Unreadable, escaped
from gpuinfra.node.probe import run
from gpuinfra.node.probes import Probe
from tests.node.healthy import JOURNAL, P4D, healthy, record

DOCTYPE = (
    '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log '
    "[%s]><nvidia_smi_log><attached_gpus>0</attached_gpus><driver_version>1</driver_version>%s</nvidia_smi_log>"
)


@pytest.mark.parametrize(
    "text",
    [
        DOCTYPE % ('<!ENTITY a "b">', "<x>&a;</x>"),
        DOCTYPE % ('<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">', "<x>&b;</x>"),
        DOCTYPE % ('<!ENTITY a SYSTEM "file:///etc/passwd">', "<x>&a;</x>"),
        DOCTYPE % ('<!ENTITY % a SYSTEM "http://127.0.0.1/x.dtd"> %a;', ""),
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd"><nvidia_smi_log>&nothing;</nvidia_smi_log>',
        "<nvidia_smi_log>" + "<a>" * 100 + "</a>" * 100 + "</nvidia_smi_log>",
        "<html><body>502 Bad Gateway</body></html>",
        "<nvidia_smi_log><attached_gpus>8</attached_gpus>",
        "<nvidia_smi_log><attached_gpus>eight</attached_gpus><driver_version>1</driver_version></nvidia_smi_log>",
        "<nvidia_smi_log></nvidia_smi_log>",
        "",
    ],
)
def test_malicious_or_broken_xml_is_refused(text: str) -> None:
    """Entities, external files, deep nesting, other documents and incomplete ones are refused with a reason."""
    with pytest.raises(Unreadable) as caught:
        nvsmi.parse(text)
    assert caught.value.reason


def test_doctype_of_a_real_log_is_accepted() -> None:
    """Every real log names a DTD, which is never fetched."""
    text = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
    text += "<nvidia_smi_log><attached_gpus>0</attached_gpus><driver_version>1</driver_version></nvidia_smi_log>"
    assert nvsmi.parse(text).attached_gpus == 0


def test_a_field_printed_twice_is_refused() -> None:
    """Duplicate fields are refused."""
    text = '<nvidia_smi_log><attached_gpus>1</attached_gpus><driver_version>1</driver_version><gpu id="a"><uuid>1</uuid><uuid>2</uuid></gpu></nvidia_smi_log>'
    with pytest.raises(Unreadable, match="twice"):
        nvsmi.parse(text)


def test_truncated_output_never_passes() -> None:
    """Each probe's output is cut at many places; no check that reads the missing part passes."""
    rng = random.Random(20261121)
    whole = healthy()
    for name in ("nvidia-smi-xml", "nvidia-smi-csv", "nvidia-smi-list", "nvlink-status", "topology", "lspci", "efa"):
        text = whole[name]["stdout"]
        for _ in range(12):
            probes = dict(whole)
            # A cut that only removes the final newline or the legend loses no data.
            end = len(text.split("\n\nLegend")[0].rstrip()) - 4
            probes[name] = {**whole[name], "stdout": text[: rng.randrange(0, end)]}
            assert not verdict(judge(probes, P4D, journal=JOURNAL), P4D).verified, name


def test_interleaved_output_is_refused() -> None:
    """Two commands that write into one stream produce lines with a wrong number of cells, and no values."""
    probes = healthy()
    lines = probes["nvidia-smi-csv"]["stdout"].splitlines()
    middle = len(lines[3]) // 2
    lines[3:5] = [lines[3][:middle] + lines[4], lines[3][middle:]]
    probes["nvidia-smi-csv"]["stdout"] = "\n".join(lines) + "\n"
    checks = {check["id"]: check["outcome"] for check in judge(probes, P4D, journal=JOURNAL)}
    assert {checks[name] for name in ("D2", "G2", "G3", "G5", "G6", "G10", "G13")} == {"error"}


@pytest.mark.parametrize("text", ["\x1b]0;title\x07\x1b[2J", "\u202eevil", "\x9b31m", "a\rb", "\x00"])
def test_control_characters_are_escaped(text: str) -> None:
    """Escape sequences, direction marks and control characters never reach a terminal, log or page."""
    shown = escaped(text)
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) <= 0x9F or letter == "\u202e" for letter in shown)
    probes = healthy()
    lines = probes["nvidia-smi-csv"]["stdout"].splitlines()
    lines[2] = lines[2].replace("NVIDIA A100-SXM4-40GB", text)
    probes["nvidia-smi-csv"]["stdout"] = "\n".join(lines) + "\n"
    text = json.dumps(judge(probes, P4D, journal=JOURNAL), ensure_ascii=False)
    assert all(letter.isprintable() for letter in text)


def test_endless_output_is_bounded(tmp_path) -> None:
    """A tool that prints 100 MB is killed; its output is kept up to the limit and marked, and does not pass."""
    flood = tmp_path / "nvidia-smi"
    flood.write_text("#!/bin/sh\nhead -c 104857600 /dev/zero\nsleep 60\n")
    flood.chmod(0o755)
    answer = run([str(flood), "-L"], Probe((str(flood),), timeout_s=30))
    assert answer["truncated"]
    assert len(answer["stdout"]) <= 4 * 256 * 1024  # each zero byte is spelled \x00
    assert answer["seconds"] < 20
    probes = {**healthy(), "nvidia-smi-list": answer}
    assert {c["id"]: c["outcome"] for c in judge(probes, P4D, journal=JOURNAL)}["G1"] == "error"


@pytest.mark.parametrize(
    "junk",
    [
        None,
        3,
        [],
        "text",
        {},
        {"argv": []},
        {"argv": "ls", "exit": 0, "stdout": "", "stderr": ""},
        {"argv": ["ls"], "exit": True},
    ],
)
def test_malformed_evidence_cannot_break_the_judge(junk: object) -> None:
    """Malformed records end in error for the checks that read them, and nothing raises."""
    probes = {name: junk for name in healthy()}
    outcomes = {
        check["outcome"] for check in judge(probes, P4D, journal=JOURNAL) if check["id"] not in ("S2", "F2", "F6")
    }
    assert outcomes == {"error"}


@pytest.mark.parametrize(
    "junk", [None, 3, [], "text", {}, {"schema": "gpuinfra.state/1", "steps": [3]}, {"recorded": 3, "steps": {}}]
)
def test_malformed_journal_cannot_break_the_judge(junk: object) -> None:
    """With any other value instead of the journal, the bootstrap does not count as done."""
    outcomes = {check["id"]: check["outcome"] for check in judge(healthy(), P4D, journal=junk)}
    assert outcomes["S2"] == "error"


def test_deeply_nested_json_is_an_error() -> None:
    """JSON nested deep enough to exhaust the stack is refused."""
    probes = {**healthy(), "cloud-init": record(["cloud-init"], "[" * 100_000)}
    assert {c["id"]: c["outcome"] for c in judge(probes, P4D, journal=JOURNAL)}["S1"] == "error"
