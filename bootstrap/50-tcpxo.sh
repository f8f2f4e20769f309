#!/usr/bin/env bash
# Brings TCPXO (FasTrak), Google's NCCL plugin for A3 Mega, or proves the one that the image brought.
#
# Reads:  TCPXO_PACKAGES                       packages at their versions: nccl-tcpxo=1.0.14
#         TCPXO_REPOSITORY, TCPXO_SUITE        https://us-apt.pkg.dev/projects/gce-ai-infra, gpudirect-tcpxo-apt
#         TCPXO_KEY_URL, TCPXO_KEY_FINGERPRINT the repository's key; 40 hex digits
# Proves: the plugin's libraries and its environment script are there.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly LIBRARIES=/var/lib/tcpxo/lib64

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query
  local packages

  if plugin_there; then
    unchanged "TCPXO is in $LIBRARIES"
  else
    need_variables TCPXO_PACKAGES TCPXO_REPOSITORY TCPXO_SUITE TCPXO_KEY_URL TCPXO_KEY_FINGERPRINT
    add_repository gpudirect-tcpxo "$TCPXO_REPOSITORY" "$TCPXO_SUITE main" "$TCPXO_KEY_URL" "$TCPXO_KEY_FINGERPRINT"
    read -ra packages <<<"$TCPXO_PACKAGES"
    install_packages "${packages[@]}"
  fi

  end_dry_run
  plugin_there || die "$LIBRARIES lacks the NCCL plugin or nccl-env-profile.sh; NCCL would fall back to TCP"
  record tcpxo "$(basename "$(readlink -f "$LIBRARIES/libnccl-net.so")")"
  proved "TCPXO's NCCL plugin is in $LIBRARIES"
}

plugin_there() { [[ -e $LIBRARIES/libnccl-net.so && -r $LIBRARIES/nccl-env-profile.sh ]]; }

main "$@"
