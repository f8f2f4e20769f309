#!/usr/bin/env bash
# Pins one kernel before anything is built for it: headers for the running kernel, and a hold on its packages.
#
# Reads:  KERNEL_FLAVOUR  Ubuntu's kernel family on this cloud: aws, azure-lts-22.04
#         KERNEL_RELEASE  exact kernel, as `uname -r` prints it: 6.8.0-1040-aws; empty keeps the running one
#         KERNEL_SERIES   series for which every module of the lock is published: `5.15`, `6.8 6.11`; empty allows any
# Proves: /lib/modules/<running kernel>/build exists, the kernel is the required one, and apt does not change it.
# Reboots when another kernel is required: the lock names one, or the mirror no longer has headers for the running one.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools uname apt-get apt-cache apt-mark dpkg-query
  need_variables KERNEL_FLAVOUR
  local running
  running=$(uname -r)

  if [[ -n ${KERNEL_RELEASE:-} && $running != "$KERNEL_RELEASE" ]]; then
    boot_into "$KERNEL_RELEASE"
  elif ! in_series "$running"; then
    boot_newest_of_family
  fi
  if ! [[ -e /lib/modules/$running/build ]]; then
    get_headers "$running"
  fi
  hold_kernel "$running"

  end_dry_run
  in_series "$running" || die "kernel $running is running, but modules exist only for the series $KERNEL_SERIES"
  [[ -e /lib/modules/$running/build ]] ||
    die "/lib/modules/$running/build is missing, although linux-headers-$running is installed"
  grep -q '^linux-' <<<"$(apt-mark showhold)" || die "apt-mark showhold lists no kernel package"
  record kernel "$running"
  proved "kernel $running has headers and is held"
}

# 6.8.0-1040-aws belongs to the series 6.8.
in_series() { [[ -z ${KERNEL_SERIES:-} || " $KERNEL_SERIES " == *" $(cut -d . -f 1,2 <<<"$1") "* ]]; }

boot_newest_of_family() {
  local release
  would "install the newest kernel of linux-$KERNEL_FLAVOUR and reboot into it" && end_dry_run
  release_kernel
  install_packages "linux-image-$KERNEL_FLAVOUR" "linux-headers-$KERNEL_FLAVOUR"
  release=$(dpkg-query -W -f='${Depends}' "linux-image-$KERNEL_FLAVOUR" | grep -oE '[0-9]+\.[0-9]+\.[0-9]+-[0-9]+-[a-z]+' | sed -n 1p)
  in_series "$release" || refuse "linux-image-$KERNEL_FLAVOUR installs kernel ${release:-none}, but modules exist only for the series $KERNEL_SERIES"
  boot_into "$release"
}

get_headers() {
  local running=$1
  apt_refresh_for "linux-headers-$running"
  if package_known "linux-headers-$running"; then
    install_packages "linux-headers-$running"
    return
  fi
  # Mirrors remove old kernels. In that case, install the newest kernel together with its headers.
  would "install the newest linux-$KERNEL_FLAVOUR, because no headers for $running are available, and reboot" && end_dry_run
  release_kernel
  install_packages "linux-image-$KERNEL_FLAVOUR" "linux-headers-$KERNEL_FLAVOUR"
  reboot_needed "no repository has headers for kernel $running; the newest $KERNEL_FLAVOUR kernel is installed"
}

apt_refresh_for() { package_known "$1" || dry_run || apt_refresh; }

boot_into() {
  local release=$1
  would "install kernel $release and reboot into it" && end_dry_run
  release_kernel
  install_packages "linux-image-$release" "linux-headers-$release"
  if command -v update-grub >/dev/null; then
    if put_file /etc/default/grub.d/90-gpuinfra.cfg \
      "GRUB_DEFAULT=\"Advanced options for Ubuntu>Ubuntu, with Linux $release\""; then
      update-grub
    fi
  fi
  reboot_needed "kernel $(uname -r) is running, but the lock requires $release"
}

# A hold from an earlier run must not block the kernel of a newer lock.
release_kernel() {
  local held
  mapfile -t held < <(apt-mark showhold | grep '^linux-' || true)
  ((${#held[@]} == 0)) || retry 3 "releasing ${held[*]}" apt-mark unhold "${held[@]}"
}

hold_kernel() {
  local packages
  mapfile -t packages < <(packages_matching "linux-image-$1" "linux-headers-$1" "linux-modules-$1" \
    "linux-modules-extra-$1" "linux-image-$KERNEL_FLAVOUR*" "linux-headers-$KERNEL_FLAVOUR*" "linux-$KERNEL_FLAVOUR*")
  ((${#packages[@]} > 0)) || dry_run || refuse "no installed package contains kernel $1; build the image with Ubuntu's kernel packages"
  ((${#packages[@]} == 0)) || hold "${packages[@]}"
}

main "$@"
