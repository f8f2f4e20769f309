#!/usr/bin/env bash
# Installs GDRCopy, which copies small messages to GPU memory without a copy engine, or verifies the one in the image.
#
# Reads:  GDRCOPY_VERSION, _RANGE_MIN, _MAX  2.5; versions that an image may contain: 2.4, 3 (excluded)
#         GDRCOPY_DEBS                       `URL SHA256; URL SHA256`: gdrdrv-dkms and libgdrapi, which are in no repository;
#                                            empty if only the image's own GDRCopy is verified
# Proves: module gdrdrv is loaded, matches this kernel, and has an accepted version.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query modprobe modinfo lsmod
  need_variables GDRCOPY_VERSION

  if ! interrupted && accepted GDRCOPY "$(gdrdrv_version)" && module_fits gdrdrv; then
    unchanged "GDRCopy $(gdrdrv_version) is installed; the lock accepts $(wanted GDRCOPY)"
  else
    install_gdrcopy
  fi
  load_module gdrdrv

  end_dry_run
  accepted GDRCOPY "$(gdrdrv_version)" || die "gdrdrv is $(gdrdrv_version), but the lock accepts $(wanted GDRCOPY)"
  module_fits gdrdrv || die "module gdrdrv was built for $(modinfo -F vermagic gdrdrv), not for $(uname -r)"
  record gdrcopy "$(gdrdrv_version)"
  proved "GDRCopy $(gdrdrv_version): module gdrdrv is loaded"
}

gdrdrv_version() { modinfo -F version gdrdrv 2>/dev/null || true; }

install_gdrcopy() { install_files GDRCOPY "GDRCopy $GDRCOPY_VERSION"; }

main "$@"
