"""The script that brings a running node to a newer bundle. Pure text.

Azure's agent runs it once for each model that a node gets, the first one included: there cloud-init has done the work already,
and the script finds nothing to do. It ends when the node is verified, or fails, which stops the roll at this batch.
"""

from __future__ import annotations

import hashlib

_SCRIPT = """#!/bin/bash
# Made by gpuinfra: Azure gives custom data to a node at its first boot only; this brings a node that runs to what is wanted now.
set -euo pipefail
readonly WANTED=@SHA256@

main() {
  cloud-init status --wait >/dev/null 2>&1 || true
  if [[ $(sha256sum </etc/gpuinfra/node.json) == "$WANTED  -" ]]; then
    echo "gpuinfra: this node has what is wanted"
    return 0
  fi
  user_data | bash
  systemctl start gpuinfra-verify.service
}

user_data() {
  cat <<'END_OF_USER_DATA'
@USER_DATA@
END_OF_USER_DATA
}

main "$@"
"""
_NODE_JSON = ("cat <<'END_OF_NODE_JSON'\n", "END_OF_NODE_JSON\n")
"""What stands before and after `/etc/gpuinfra/node.json` in user data (`bootstrap/boot/user-data.sh`)."""


def renewal(user_data: str) -> str:
    """The script for one user data. Raises `ValueError` where the user data holds no `node.json`."""
    before, after = _NODE_JSON
    if before not in user_data:
        raise ValueError("the user data writes no node.json, so nobody could say whether a node has it")
    node_json = user_data.split(before, 1)[1].split(after, 1)[0]
    wanted = hashlib.sha256(node_json.encode()).hexdigest()
    return _SCRIPT.replace("@SHA256@", wanted).replace("@USER_DATA@", user_data.rstrip("\n"))
