#!/usr/bin/env bash
# Installs Docker Engine, or verifies the one in the image. The container toolkit step configures it for GPUs.
#
# Reads:  DOCKER_VERSION           29.8.1
#         DOCKER_RANGE_MIN, _MAX   versions that an image may contain: 26.1, 30 (excluded); older versions lack CDI
#         DOCKER_PACKAGES          packages of Docker's repository with their versions
#         DOCKER_REPOSITORY, _SUITE                 https://download.docker.com/linux/ubuntu; `noble stable`
#         DOCKER_KEY_URL, _KEY_FINGERPRINT          the repository's key; 40 hex digits
# Proves: the daemon responds with an accepted version, and runs now and at the next boot.
# No user becomes a member of group docker: membership is equivalent to root.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query systemctl
  need_variables DOCKER_VERSION

  if ! interrupted && accepted DOCKER "$(client_version)"; then
    unchanged "Docker $(client_version) is installed; the lock accepts $(wanted DOCKER)"
  else
    install_docker
  fi
  service_on docker.service

  end_dry_run
  accepted DOCKER "$(server_version)" || die "$(refusal)"
  record docker "$(server_version)"
  proved "the daemon of Docker $(server_version) answers"
}

numbers() { grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | sed -n 1p || true; }

client_version() { docker --version 2>/dev/null | numbers; }

server_version() { docker info --format '{{.ServerVersion}}' 2>/dev/null | numbers; }

refusal() {
  if [[ -n $(server_version) ]]; then
    printf 'the Docker daemon is %s, but the lock accepts %s' "$(server_version)" "$(wanted DOCKER)"
  else
    printf 'the Docker daemon does not respond: %s' "$(service_reason docker.service)"
  fi
}

install_docker() {
  local packages
  need_variables DOCKER_PACKAGES DOCKER_REPOSITORY DOCKER_SUITE DOCKER_KEY_URL DOCKER_KEY_FINGERPRINT
  need_tools gpg curl
  add_repository docker "$DOCKER_REPOSITORY" "$DOCKER_SUITE" "$DOCKER_KEY_URL" "$DOCKER_KEY_FINGERPRINT"
  read -ra packages <<<"$DOCKER_PACKAGES"
  install_packages "${packages[@]}"
}

main "$@"
