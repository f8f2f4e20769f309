"""State of the first version under the real engine: what its preview says about the present program."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gpuinfra.rehearsal.session import Options, open_session
from gpuinfra.rehearsal.view import view_for
from tests.clouds.aws.test_upgrade import WANTED
from tests.clouds.aws.upgrade import STATE
from tests.clouds.names import PARTS, type_of


@pytest.mark.long
def test_the_engine_replaces_nothing_of_the_first_version(tmp_path: Path) -> None:
    """The export of the first version is imported into a fresh backend; a preview of today's program replaces and deletes nothing but what is wanted."""
    rows = json.loads(STATE.read_text(encoding="utf-8"))
    for row in rows:
        repeated = {key: value for key, value in (row.get("inputs") or {}).items() if key != "__defaults"}
        if row.get("custom"):
            row["outputs"] = {**repeated, **(row.get("outputs") or {})}
    version = "v3.259.0"
    magic = hashlib.sha256(version.encode()).hexdigest()  # the engine's mark that nobody has edited the file
    manifest = {"time": "2026-11-21T00:00:00Z", "magic": magic, "version": version}
    export = tmp_path / "export.json"
    with open_session(Options(stack="aws-p4d", folder=tmp_path / "r"), view_for(io.StringIO())) as session:
        salt = YAML(typ="safe").load(session.folder.stack_file.read_text(encoding="utf-8"))["encryptionsalt"]
        keys = {"type": "passphrase", "state": {"salt": salt}}
        deployment = {"manifest": manifest, "secrets_providers": keys, "resources": rows}
        export.write_text(json.dumps({"version": 3, "deployment": deployment}))
        session.pulumi.quick("stack", "import", "--file", str(export), "--stack", "aws-p4d")
        done = session.operate("preview", title="preview of an upgrade")
    assert done.ok, done.output[-4000:]
    counts = done.progress.summary or {}
    changed = {urn.rsplit("::", 1)[1]: op for op, urn in done.progress.changed if type_of(urn) not in PARTS}
    forced = {name for name, op in changed.items() if "replace" in op or "delete" in op}
    assert forced <= set(WANTED), (forced, counts)
    assert counts["same"] > 60
    gone = {type_of(urn) for op, urn in done.progress.changed if op == "delete"}
    assert gone == {type_ for type_ in PARTS if type_.startswith("gpuinfra:aws:")}, (
        "only rows of components that are parts now may leave the state"
    )
    assert {name for name, op in changed.items() if op == "create"} == set()
