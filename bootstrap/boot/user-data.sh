#cloud-boothook
#!/bin/bash
# Made by gpuinfra: fetches this node's bundle, verifies it, and starts its units.
# It contains no secret: the node fetches the bundle with its own role.
#
# cloud-init runs a boot hook early in every boot. A user script would be lost with the power: cloud-init marks it as done
# before it runs it (FileSemaphores in cloudinit/helpers.py). The first run installs gpuinfra-boot.service, which runs this
# script with `start` until the units of the bundle are started.
set -euo pipefail
umask 022
readonly HOME_OF_BUNDLES=/opt/gpuinfra
readonly BOOT=$HOME_OF_BUNDLES/boot
readonly UNITS=/etc/systemd/system
readonly UNIT=gpuinfra-boot.service
readonly STARTED=/var/lib/gpuinfra/started.json

main() {
  case ${1:-install} in
    # A configuration that was renewed stays in place when the machine boots with its first user data.
    install) [[ -e $BOOT/user-data ]] || install_unit ;;
    renew) install_unit ;;
    start) start ;;
  esac
}

# The copy of this script comes last, so it exists only with all other files.
install_unit() {
  mkdir -p "$BOOT" /etc/gpuinfra /var/lib/gpuinfra "$UNITS/multi-user.target.wants"
  node_json >/etc/gpuinfra/node.json.new
  boot_unit >"$UNITS/$UNIT"
  ln -sf "$UNITS/$UNIT" "$UNITS/multi-user.target.wants/$UNIT"
  cp -f "$0" "$BOOT/user-data.new"
  mv -f /etc/gpuinfra/node.json.new /etc/gpuinfra/node.json
  sync
  mv -f "$BOOT/user-data.new" "$BOOT/user-data"
  systemctl daemon-reload
  systemctl restart --no-block "$UNIT"
}

start() {
  trap 'log "line $LINENO of $BOOT/user-data failed; $UNIT runs it again in 30 s"' ERR
  local sha256 archive
  if cmp -s /etc/gpuinfra/node.json "$STARTED"; then
    log "the units of this configuration were started before"
    return
  fi
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
  cp -f /etc/gpuinfra/node.json "$STARTED.new"
  sync
  mv -f "$STARTED.new" "$STARTED"
  log "the bundle is installed; gpuinfra-bootstrap.service continues"
}

log() { echo "gpuinfra: $*"; }

of_bundle() {
  python3 -c 'import json, sys
node = json.load(open("/etc/gpuinfra/node.json"))
print({"region": node["region"], **node["bundle"]}[sys.argv[1]])' "$1"
}

# Atomic: a kill in the middle leaves only a temporary folder, which the next run deletes.
unpack() {
  local archive=$1 target=$2 draft
  rm -rf "$HOME_OF_BUNDLES"/.new-*
  draft=$(mktemp -d "$HOME_OF_BUNDLES/.new-XXXXXX")
  tar -xf "$archive" -C "$draft" --no-same-owner
  chmod 755 "$draft"
  sync
  mv -T "$draft" "$target"
  rm -f "$archive"
}

start_units() {
  local units
  cp -f "$HOME_OF_BUNDLES"/current/units/gpuinfra-* "$UNITS/"
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

boot_unit() {
  cat <<'END_OF_UNIT'
@UNIT@
END_OF_UNIT
}

fetch() {
  cat >"$BOOT/fetch.py" <<'END_OF_FETCH'
@FETCH@
END_OF_FETCH
  cat >"$BOOT/fetch-cloud.py" <<'END_OF_CLOUD'
@CLOUD@
END_OF_CLOUD
  python3 "$BOOT/fetch-cloud.py" "$@"
}

main "$@"
