#!/bin/bash
# Made by gpuinfra: fetches this node's bundle, verifies it, and starts its units without waiting for them.
# cloud-init runs it once, at first boot. It holds no secret: the bundle is fetched with the node's own role.
set -euo pipefail
umask 022
readonly HOME_OF_BUNDLES=/opt/gpuinfra
readonly STARTED=/run/gpuinfra-started.json

main() {
  trap 'say "user data failed in line $LINENO; this node will not report"' ERR
  local sha256 archive
  mkdir -p /etc/gpuinfra "$HOME_OF_BUNDLES" /var/lib/gpuinfra
  node_json >/etc/gpuinfra/node.json.new
  # A cloud that brings a new bundle to running nodes by this script also runs it beside cloud-init at first boot.
  if cmp -s /etc/gpuinfra/node.json.new "$STARTED"; then
    rm -f /etc/gpuinfra/node.json.new
    say "this configuration was started in this boot already"
    return
  fi
  mv -f /etc/gpuinfra/node.json.new /etc/gpuinfra/node.json
  sha256=$(of_bundle sha256)
  if [[ ! -d $HOME_OF_BUNDLES/$sha256 ]]; then
    say "fetching the bundle $sha256"
    archive=$HOME_OF_BUNDLES/.$sha256.tar
    fetch "$(of_bundle bucket)" "$(of_bundle key)" "$(of_bundle region)" "$sha256" "$archive"
    unpack "$archive" "$HOME_OF_BUNDLES/$sha256"
  fi
  ln -sfn "$HOME_OF_BUNDLES/$sha256" "$HOME_OF_BUNDLES/.current"
  mv -fT "$HOME_OF_BUNDLES/.current" "$HOME_OF_BUNDLES/current"
  start_units
  cp -f /etc/gpuinfra/node.json "$STARTED"
  say "bundle is in place; gpuinfra-bootstrap.service goes on from here"
}

say() {
  echo "gpuinfra: $*"
  { echo "gpuinfra: $*" >/dev/console; } 2>/dev/null || true
}

of_bundle() {
  python3 -c 'import json, sys
node = json.load(open("/etc/gpuinfra/node.json"))
print({"region": node["region"], **node["bundle"]}[sys.argv[1]])' "$1"
}

# All of it or nothing: a kill in the middle leaves a folder that nobody reads.
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
  # shellcheck disable=SC2086  # one word a unit
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
