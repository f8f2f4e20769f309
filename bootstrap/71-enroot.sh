#!/usr/bin/env bash
# Installs enroot, which runs containers without a daemon and without root, or verifies the one in the image.
#
# Reads:  ENROOT_VERSION          4.2.1
#         ENROOT_RANGE_MIN, _MAX  versions that an image may contain: 4, 5 (excluded)
#         ENROOT_DEBS             `URL SHA256; URL SHA256`: enroot and enroot+caps, which are in no repository
# Proves: enroot has an accepted version, and an unprivileged user can create the namespaces of a container.
# GPUs reach containers through enroot's hook 98-nvidia.sh, which runs nvidia-container-cli of the container toolkit.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly PROFILE=/etc/apparmor.d/enroot

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query runuser
  need_variables ENROOT_VERSION

  if ! interrupted && accepted ENROOT "$(enroot_version)"; then
    unchanged "enroot $(enroot_version) is installed; the lock accepts $(wanted ENROOT)"
  else
    install_enroot
  fi
  # Ubuntu 24.04 allows unprivileged user namespaces only to programs with an AppArmor profile. The package contains the profile.
  if command -v enroot-nsenter >/dev/null && ! creates_namespaces && [[ -e $PROFILE ]] && ! would "load $PROFILE"; then
    need_tools apparmor_parser
    apparmor_parser --replace "$PROFILE"
    changed "loaded $PROFILE"
  fi

  end_dry_run
  accepted ENROOT "$(enroot_version)" || die "enroot is $(enroot_version), but the lock accepts $(wanted ENROOT)"
  creates_namespaces || die "users cannot create the namespaces of a container: $(namespaces 2>&1 | sed -n '$p')"
  record enroot "$(enroot_version)"
  proved "enroot $(enroot_version): an unprivileged user can create the namespaces of a container"
}

enroot_version() { enroot version 2>/dev/null | grep -oE '^[0-9]+\.[0-9]+\.[0-9]+' | sed -n 1p || true; }

namespaces() { runuser -u nobody -- enroot-nsenter --user --mount true; }

creates_namespaces() { namespaces >/dev/null 2>&1; }

install_enroot() { install_files ENROOT "enroot $ENROOT_VERSION"; }

main "$@"
