#!/usr/bin/env bash
# Installs NVIDIA's container toolkit with CDI, or verifies the one in the image.
#
# Reads:  CONTAINER_TOOLKIT_VERSION          1.20.1
#         CONTAINER_TOOLKIT_RANGE_MIN, _MAX  versions that an image may contain: 1.18, 2 (excluded)
#         CONTAINER_TOOLKIT_REPOSITORY       https://nvidia.github.io/libnvidia-container/stable/deb
#         CONTAINER_TOOLKIT_KEY_URL, _KEY_FINGERPRINT  the repository's key; 40 hex digits
# Proves: nvidia-ctk has an accepted version, and CDI lists nvidia.com/gpu=all.
# Pulls no image: a public registry throttles a whole fleet.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg dpkg-query systemctl
  need_variables CONTAINER_TOOLKIT_VERSION

  if ! interrupted && accepted CONTAINER_TOOLKIT "$(toolkit_version)"; then
    unchanged "container toolkit $(toolkit_version) is installed; the lock accepts $(wanted CONTAINER_TOOLKIT)"
  else
    install_toolkit
  fi
  configure_runtime docker docker.service /etc/docker/daemon.json
  configure_runtime containerd containerd.service /etc/containerd/conf.d/99-nvidia.toml
  # The specification is in /var/run, so the service must write it at every boot. The path unit reacts only to a new driver.
  service_on nvidia-cdi-refresh.path
  at_boot nvidia-cdi-refresh.service
  refresh_cdi

  end_dry_run
  accepted CONTAINER_TOOLKIT "$(toolkit_version)" ||
    die "the container toolkit is $(toolkit_version), but the lock accepts $(wanted CONTAINER_TOOLKIT)"
  lists_gpus || die "nvidia-ctk cdi list does not list nvidia.com/gpu=all: $(service_reason nvidia-cdi-refresh.service)"
  record container_toolkit "$(toolkit_version)"
  proved "container toolkit $(toolkit_version) is installed, and CDI lists the GPUs"
}

toolkit_version() { nvidia-ctk --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | sed -n 1p || true; }

install_toolkit() {
  local version=$CONTAINER_TOOLKIT_VERSION-1
  need_variables CONTAINER_TOOLKIT_REPOSITORY CONTAINER_TOOLKIT_KEY_URL CONTAINER_TOOLKIT_KEY_FINGERPRINT
  need_tools gpg curl
  add_repository nvidia-container-toolkit "$CONTAINER_TOOLKIT_REPOSITORY/$(dpkg --print-architecture)" / \
    "$CONTAINER_TOOLKIT_KEY_URL" "$CONTAINER_TOOLKIT_KEY_FINGERPRINT"
  # Install all four packages at one version: they are released together, and other combinations fail.
  install_packages "nvidia-container-toolkit=$version" "nvidia-container-toolkit-base=$version" \
    "libnvidia-container-tools=$version" "libnvidia-container1=$version"
}

# Configures an installed runtime for GPUs, and restarts it only if its file changed.
configure_runtime() {
  local runtime=$1 unit=$2 file=$3 before after
  command -v "$runtime" >/dev/null || return 0
  if dry_run; then
    # Both files then name the runtime. nvidia-ctk itself writes the file, so a dry run does not call it.
    grep -qsF nvidia-container-runtime "$file" || would "configure $runtime for GPUs"
    return 0
  fi
  before=$(cat "$file" 2>/dev/null || true)
  nvidia-ctk runtime configure --runtime="$runtime" >/dev/null
  after=$(cat "$file" 2>/dev/null || true)
  [[ $before != "$after" ]] || return 0
  ! systemctl is-active --quiet "$unit" || systemctl restart "$unit"
  changed "configured $runtime for GPUs in $file"
}

refresh_cdi() {
  lists_gpus && return 0
  would "write the CDI specification" && return 0
  systemctl restart nvidia-cdi-refresh.service
  changed "wrote the CDI specification"
}

lists_gpus() { grep -qxF 'nvidia.com/gpu=all' <<<"$(nvidia-ctk cdi list 2>/dev/null)"; }

main "$@"
