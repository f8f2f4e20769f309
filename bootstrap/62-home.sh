#!/usr/bin/env bash
# Mounts the cluster's home directories by NFS: Filestore, EFS, Azure Files.
#
# Reads:  HOME_OPTIONS           options of the mount on this cloud: nfsvers=3,hard,timeo=600,retrans=3
#         GPUINFRA_FILE_SYSTEMS  lines of `kind mount dns_name mount_name`, from node.json; of kind `home` here
# Proves: each is mounted from its own server and takes a write.
# Homes that the image or the cloud made on this machine are copied there first where they are not there yet, because a mount
# hides them, and with them the keys that their users log in with.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query mount mountpoint findmnt cp
  need_variables HOME_OPTIONS
  local kind mount server name mounted=()

  install_packages nfs-common
  while read -r kind mount server name; do
    [[ $kind == home ]] || continue
    keep_local_homes "$mount"
    mount_one nfs "$mount" "$server:$name" "$HOME_OPTIONS,$WAIT_FOR_NETWORK"
    bring_local_homes "$mount"
    mounted+=("$mount")
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"

  end_dry_run
  ((${#mounted[@]} > 0)) || refuse "node.json names no file system of kind home, but the plan has one; make the node anew"
  while read -r kind mount server name; do
    [[ $kind != home ]] || prove_mount nfs "$mount" "$server:$name"
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"
  proved "home directories at ${mounted[*]} take writes"
}

kept() { printf '/var/lib/gpuinfra/homes%s\n' "${1//\//-}"; }

keep_local_homes() {
  local mount=$1 copy
  copy=$(kept "$mount")
  dry_run && return 0
  mountpoint -q "$mount" || ! compgen -G "$mount/*" >/dev/null || [[ -d $copy ]] || {
    rm -rf -- "$copy.new"
    cp -a -- "$mount" "$copy.new"
    mv -T -- "$copy.new" "$copy"
  }
}

# Nothing that is there is overwritten: another node may have been first, and its user may have worked since.
bring_local_homes() {
  local copy home
  copy=$(kept "$1")
  dry_run || [[ ! -d $copy ]] && return 0
  for home in "$copy"/*/; do
    home=${home%/}
    [[ -e $1/${home##*/} ]] || {
      cp -a -- "$home" "$1/.${home##*/}.$(uname -n)"
      mv -nT -- "$1/.${home##*/}.$(uname -n)" "$1/${home##*/}"
      changed "copied the home ${home##*/} to $1"
    }
  done
  rm -rf -- "$copy"
}

main "$@"
