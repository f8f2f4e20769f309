#!/bin/bash
# Made by gpuinfra: fetches this node's bundle, verifies it, and starts its units without waiting for them.
# cloud-init runs it once, at first boot. It contains no secret: the node fetches the bundle with its own role.
set -euo pipefail
umask 022
readonly HOME_OF_BUNDLES=/opt/gpuinfra
readonly STARTED=/run/gpuinfra-started.json

main() {
  trap 'log "user data failed in line $LINENO; this node will not report"' ERR
  local sha256 archive
  mkdir -p /etc/gpuinfra "$HOME_OF_BUNDLES" /var/lib/gpuinfra
  node_json >/etc/gpuinfra/node.json.new
  # A cloud that applies a new bundle to running nodes with this script also runs it next to cloud-init at first boot.
  if cmp -s /etc/gpuinfra/node.json.new "$STARTED"; then
    rm -f /etc/gpuinfra/node.json.new
    log "this configuration was already started in this boot"
    return
  fi
  mv -f /etc/gpuinfra/node.json.new /etc/gpuinfra/node.json
  sha256=$(of_bundle sha256)
  if [[ ! -d $HOME_OF_BUNDLES/$sha256 ]]; then
    log "fetching the bundle $sha256"
    archive=$HOME_OF_BUNDLES/.$sha256.tar
    fetch "$(of_bundle bucket)" "$(of_bundle key)" "$(of_bundle region)" "$sha256" "$archive"
    unpack "$archive" "$HOME_OF_BUNDLES/$sha256"
  fi
  ln -sfn "$HOME_OF_BUNDLES/$sha256" "$HOME_OF_BUNDLES/.current"
  mv -fT "$HOME_OF_BUNDLES/.current" "$HOME_OF_BUNDLES/current"
  start_units
  cp -f /etc/gpuinfra/node.json "$STARTED"
  log "the bundle is installed; gpuinfra-bootstrap.service continues"
}

log() {
  echo "gpuinfra: $*"
  { echo "gpuinfra: $*" >/dev/console; } 2>/dev/null || true
}

of_bundle() {
  python3 -c 'import json, sys
node = json.load(open("/etc/gpuinfra/node.json"))
print({"region": node["region"], **node["bundle"]}[sys.argv[1]])' "$1"
}

# Atomic: a kill in the middle leaves only a temporary folder.
unpack() {
  local archive=$1 target=$2 draft
  draft=$(mktemp -d "$HOME_OF_BUNDLES/.new-XXXXXX")
  tar -xf "$archive" -C "$draft" --no-same-owner
  chmod 755 "$draft"
  sync
  mv -T "$draft" "$target"
  rm -f "$archive"
}

start_units() {
  local units
  cp -f "$HOME_OF_BUNDLES"/current/units/gpuinfra-* /etc/systemd/system/
  units=$(cd "$HOME_OF_BUNDLES/current/units" && grep -l '^\[Install\]' gpuinfra-*)
  systemctl daemon-reload
  # shellcheck disable=SC2086  # one word per unit
  systemctl enable $units
  # shellcheck disable=SC2086
  systemctl start --no-block $units
}

node_json() {
  cat <<'END_OF_NODE_JSON'
@NODE_JSON@
END_OF_NODE_JSON
}

fetch() {
  python3 - "$@" <<'END_OF_FETCH'
@FETCH@
END_OF_FETCH
}

main "$@"
