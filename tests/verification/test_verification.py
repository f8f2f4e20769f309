from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.verify import command
from gpuinfra.handover import workers
from gpuinfra.node import evidence
from gpuinfra.verification.read import MAX_BYTES, read_folder
from tests.node.healthy import JOURNAL, P4D, probes, state
from tests.node.test_evidence import BOOT, NODE

Write = Callable[..., Path]


def documented(instance: str, *faults: str, seq: int = 1, previous: str | None = None) -> dict[str, Any]:
    """Evidence of one node."""
    device_state = state(*faults)
    device_state["instance"]["id"] = instance
    return evidence.make(
        node=NODE, expectation=P4D, journal=JOURNAL, probes=probes(device_state=device_state), instance_id=instance,
        boot_id=BOOT, seq=seq, previous=previous, started="2026-11-21T09:00:00Z", finished="2026-11-21T09:00:05Z", host_keys=[],
    )  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes evidence in the layout of the bucket."""

    def put(document: dict[str, Any], folder: str = "now") -> Path:
        place = tmp_path / folder / document["instance_id"] / document["boot_id"]
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{document['seq']:06d}.json"
        path.write_bytes(evidence.dumped(document))
        (place / f"{document['seq']:06d}.proof.json").write_text('{"schema": "gpuinfra.proof/1"}')
        return path

    (tmp_path / "expectation.json").write_text(json.dumps(P4D))
    return put


def verify(tmp_path: Path, *args: str, folder: str = "now") -> Result:
    """Run the command on this test's folder."""
    words = ["--evidence", str(tmp_path / folder), "--expectation", str(tmp_path / "expectation.json"), *args]
    return CliRunner().invoke(command, words, standalone_mode=False)


def test_nodes_are_judged_again_with_an_action(tmp_path: Path, write: Write) -> None:
    """The table lists each node with outcome and action; problems name the GPU and a hint."""
    write(documented("i-00000000000000001"))
    write(documented("i-00000000000000002", "ecc-uncorrected"))
    result = verify(tmp_path)
    assert result.return_value == 1
    assert "drain; reset the GPU" in result.output
    assert "GPU 3 at 00000000:20:1D.0" in result.output
    assert "1 of 2 nodes verified" in result.output


def test_outcomes_from_the_node_are_ignored(tmp_path: Path, write: Write) -> None:
    """A node that reports only passed checks is judged by its raw output."""
    document = documented("i-00000000000000001", "gpu-missing")
    for check in document["checks"]:
        check["outcome"] = "pass"
    write(document)
    assert verify(tmp_path).return_value == 1


def test_json_junit_and_page_agree(tmp_path: Path, write: Write) -> None:
    """All formats have the same outcomes, and the page has no scripts or external resources."""
    write(documented("i-00000000000000001", "pcie-narrow"))
    junit, page = tmp_path / "v.xml", tmp_path / "v.html"
    result = verify(tmp_path, "--json", "--junit", str(junit), "--html", str(page))
    result_json = json.loads(result.output)
    assert (result_json["schema"], result_json["verified"]) == ("gpuinfra.verification/1", False)
    assert result_json["totals"] == {"nodes": 1, "nodes_verified": 0, "gpus": 8, "gpus_verified": 0}
    assert (result_json["nodes"][0]["blocking"], result_json["nodes"][0]["action"]) == (["G3", "B5"], "reboot")
    suite = ElementTree.parse(junit).getroot()[0]
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("2", "0", "2")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["G3 pcie_link", "B5 host_copy"]
    text = page.read_text()
    assert "x8 of x16 lanes" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_hostile_evidence_cannot_write_the_page_or_the_terminal(tmp_path: Path, write: Write) -> None:
    """Text from a node stays text: no tag, attribute or escape sequence has an effect."""
    document = documented("i-00000000000000001")
    bad = "</td><script>alert(1)</script>\x1b[2J\u202e'\"&"
    document["machine"], document["pool"] = bad, bad
    document["gpus"] = [{"uuid": bad, "pci": bad}, "no gpu", 3]
    document["probes"]["nvidia-smi-list"]["stdout"] = bad
    document["probes"]["uname"]["stdout"] = bad
    document["state"] = {"schema": "gpuinfra.state/1", "steps": [{"id": "30-driver", "status": bad, "reason": bad}]}
    write(document)
    page, junit = tmp_path / "v.html", tmp_path / "v.xml"
    result = verify(tmp_path, "--html", str(page), "--junit", str(junit))
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

    Tags().feed(page.read_text())
    assert "script" not in tags
    assert ElementTree.parse(junit).getroot().tag == "testsuites"
    assert all(letter.isprintable() or letter == "\n" for letter in result.output)


def test_the_newest_evidence_of_a_node_is_judged(tmp_path: Path, write: Write) -> None:
    """Of several documents of a node, the one with the highest number is judged."""
    first = write(documented("i-00000000000000001", "gpu-missing"))
    previous = evidence.sha256(first.read_bytes())
    write(documented("i-00000000000000001", seq=2, previous=previous))
    found = read_folder(tmp_path / "now")
    assert (found.problems, [one.seq for one in found.newest]) == ((), [2])
    assert verify(tmp_path).return_value == 0


def test_a_broken_chain_is_reported(tmp_path: Path, write: Write) -> None:
    """A document without the hash of the previous one was changed, lost or forged."""
    write(documented("i-00000000000000001"))
    write(documented("i-00000000000000001", seq=2, previous="0" * 64))
    assert "does not contain the hash" in read_folder(tmp_path / "now").problems[0]
    assert "note: i-00000000000000001: document 2" in verify(tmp_path).output


def test_a_document_that_takes_too_long_is_an_error(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time limit, each check of the node has the outcome `error` with the reason, and the command ends."""
    write(documented("i-1"))
    monkeypatch.setattr(workers, "LIMIT_S", 0.0)
    result = verify(tmp_path, "--json")
    (node,) = json.loads(result.output)["nodes"]
    assert (result.return_value, node["outcome"], node["action"]) == (1, "failed", "configure")
    reasons = {check["reason"] for check in node["checks"] if check["outcome"] == "error"}
    assert reasons == {"the evidence cannot be judged: the evaluation takes longer than 0 s"}
    assert {check["outcome"] for check in node["checks"]} <= {"error", "skip"}


def test_changes_since_the_baseline_are_reported(tmp_path: Path, write: Write) -> None:
    """With a baseline, checks that had a better outcome are listed."""
    write(documented("i-00000000000000001"), "before")
    write(documented("i-00000000000000001", "power-capped"))
    output = verify(tmp_path, "--baseline", str(tmp_path / "before")).output
    assert "worse than the baseline: G9 power_limit: was pass, is warn" in output
    assert "worse" not in verify(tmp_path, "--baseline", str(tmp_path / "now")).output


def test_the_plan_of_a_stack_gives_the_expectation(tmp_path: Path, write: Write) -> None:
    """The plan gives the expectation of the node's pool; evidence of an unknown pool is refused by name."""
    document = documented("i-00000000000000001")
    write(document)
    words = ["aws-p4d", "--evidence", str(tmp_path / "now"), "--json"]
    result_json = json.loads(CliRunner().invoke(command, words, standalone_mode=False).output)
    # The paper node ran two steps, no diagnostics and no fabric test, the stack's pool has eleven, level 1 and the test: all else is as the plan expects.
    assert result_json["nodes"][0]["blocking"] == ["S2", "B1", "B2", "B8"]
    document["pool"] = "other"
    write(document)
    with pytest.raises(UsageError, match="pool 'other', but aws-p4d has gpu"):
        CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "specify STACK or --evidence DIR"),
        (["--evidence", "/nonexistent", "--expectation", "x"], "/nonexistent contains no evidence"),
        (["--evidence", "."], "specify either STACK or --expectation"),
        (["stack", "--evidence", ".", "--expectation", "x"], "one source"),
    ],
)
def test_a_usage_error_names_the_missing_option(tmp_path: Path, write: Write, args: list[str], words: str) -> None:
    """Each usage error names what to give."""
    path = write(documented("i-00000000000000001"))
    with pytest.raises(UsageError, match=words):
        CliRunner().invoke(
            command, [str(path) if a == "." else a for a in args], standalone_mode=False, catch_exceptions=False
        )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": "gpuinfra.evidence/1"}',
        '{"schema": "gpuinfra.evidence/1", "instance_id": 3, "seq": 1}',
    ],
)
def test_a_folder_without_evidence_is_a_usage_error(tmp_path: Path, text: str) -> None:
    """A folder without a valid document is a usage error, not an empty success."""
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match="contains no evidence"):
        read_folder(tmp_path)


def test_the_last_line_and_the_page_count_the_actions(tmp_path: Path, write: Write) -> None:
    """Both count the nodes to replace, to reset and so on, most urgent first."""
    write(documented("i-00000000000000001"))
    write(documented("i-00000000000000002", "ecc-sram"))
    write(documented("i-00000000000000003", "remap-pending"))
    write(documented("i-00000000000000004", "power-capped"))
    page = tmp_path / "page.html"
    last = verify(tmp_path, "--html", str(page)).output.splitlines()[-1]
    assert last.startswith("2 of 4 nodes verified: 1 to replace, 1 to reset, 1 to look at. ")
    badges = [f">{words}</span>" for words in ("1 replace", "1 reset", "1 look", "1 ready")]
    places = [page.read_text().index(badge) for badge in badges]
    assert places == sorted(places)


def test_the_reason_of_a_change_appears_once(tmp_path: Path, write: Write) -> None:
    """In text the reason appears at the check only; in JSON it is part of the change."""
    write(documented("i-00000000000000001"), "before")
    write(documented("i-00000000000000001", "power-capped"))
    words = ("--baseline", str(tmp_path / "before"))
    text = verify(tmp_path, *words).output
    assert text.count("limited to 300 W of 400 W") == 1
    (node,) = json.loads(verify(tmp_path, *words, "--json").output)["nodes"]
    assert [change.endswith("limited to 300 W of 400 W)") for change in node["worse"]] == [True]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(path.parent):
        listener.bind(path.name)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_pipe, "x.json is not a regular file"),
        (Path.mkdir, "x.json is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "x.json is not a regular file"),
        (lambda path: path.symlink_to("/dev/tty"), "x.json "),
        (lambda path: path.symlink_to(path.name), "x.json cannot be read: Too many levels of symbolic links"),
        (lambda path: path.symlink_to("missing"), "x.json cannot be read: No such file or directory"),
        (_socket, "x.json cannot be read: No such device or address"),
        (lambda path: path.write_bytes(b" " * (MAX_BYTES + 1)), f"x.json is larger than {MAX_BYTES} bytes"),
    ],
)  # fmt: skip
def test_anything_but_a_file_of_evidence_is_one_finding(
    tmp_path: Path, write: Write, make: Callable[[Path], object], words: str
) -> None:
    """A named pipe, a device, a link to one, a folder or an unreadable file is a note, and the other evidence is judged."""
    write(documented("i-00000000000000001"))
    make(tmp_path / "now" / "x.json")
    (found,) = read_folder(tmp_path / "now").problems
    assert words in found
    assert verify(tmp_path).return_value == 0


def test_a_file_that_never_ends_is_refused(tmp_path: Path) -> None:
    """A device in place of the folder is not read."""
    (tmp_path / "expectation.json").write_text(json.dumps(P4D))
    (tmp_path / "now").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="now is not a regular file"):
        read_folder(tmp_path / "now")
