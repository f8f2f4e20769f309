#!/usr/bin/env bash
# Mounts the cluster's home directories over NFS: Filestore, EFS, FSx for OpenZFS, Azure Files, Azure NetApp Files.
#
# Reads:  HOMES                  mount, connection and mount options of each home: /home tls nfsvers=4.1,hard; /tools plain vers=3
#         HOME_TLS_PORT          port at which the servers of homes with TLS accept it: 2049
#         GPUINFRA_FILE_SYSTEMS  lines of `kind mount dns_name mount_name`, from node.json; this step uses kind `home`. The connection and the options
#                                follow for a home that HOMES does not list and that is not mounted like the first one
# Proves: each is mounted from its own server, with TLS if HOMES says so, and accepts a write, unless it is a replica before a failover.
# Home directories that the image or the cloud created on this machine are copied to the share if they are missing there,
# because the mount hides them together with their users' SSH keys.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"

readonly TLS_UNIT=gpuinfra-home-tls.service
readonly TLS_CONFIG=/etc/gpuinfra/home-tls.conf # the condition of the unit
readonly TLS_FIRST_PORT=20049                   # first of the local ports of efs-utils: 20049 to 21049

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query mount mountpoint findmnt cp
  need_variables HOMES
  local mount source options boot mounted=() encrypted=() replicas=()

  install_packages nfs-common
  [[ $(homes) != *,port=* ]] || connect_with_tls # only with TLS, a port is an option
  while read -r mount source options; do
    save_local_homes "$mount"
    boot=$(boot_options nfs "$mount")
    # This sets only the order: with x-systemd.requires=, a restart of the unit would unmount the homes.
    ! uses_tls "$mount" || boot+=,x-systemd.after=$TLS_UNIT
    mount_one nfs "$mount" "$source" "$options,$boot"
    is_read_only_replica "$mount" || restore_local_homes "$mount"
    mounted+=("$mount")
  done < <(homes)

  end_dry_run
  ((${#mounted[@]} > 0)) || refuse "node.json lists no file system of kind home, but the plan has one; replace the node"
  while read -r mount source options; do
    prove_mount nfs "$mount" "$source"
    ! is_read_only_replica "$mount" || replicas+=("$mount")
    if uses_tls "$mount"; then
      prove_port "$mount" "${options##*,port=}"
      encrypted+=("$mount")
    fi
  done < <(homes)
  proved "home directories at ${mounted[*]} accept writes${encrypted[*]:+; with TLS: ${encrypted[*]}}${replicas[*]:+; after a failover: ${replicas[*]}}"
}

# homes: prints mount, source and options of each home. With TLS, each is mounted through its own local port.
homes() {
  local kind mount server name connection options port=$TLS_FIRST_PORT
  while read -r kind mount server name _; do
    [[ $kind == home ]] || continue
    read -r connection options < <(setting "$mount")
    if [[ $connection == tls ]]; then
      printf '%s 127.0.0.1:%s %s,port=%s\n' "$mount" "$name" "$options" "$port"
      port=$((port + 1))
    else
      printf '%s %s:%s %s\n' "$mount" "$server" "$name" "$options"
    fi
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"
}

# setting MOUNT: prints the connection and the mount options of a home. One that HOMES does not list has those in node.json,
# or else those of the first: the site of another stack can have more homes than this cluster declares.
setting() {
  local kind mount server name connection options found=
  while read -r kind mount server name connection options; do
    [[ $kind != home || $mount != "$1" || -z $options ]] || found="$connection $options"
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"
  [[ -z $found ]] || {
    printf '%s\n' "$found"
    return
  }
  while read -r mount connection options; do
    [[ -n $found && $mount != "$1" ]] || found="$connection $options"
  done <<<"${HOMES//;/$'\n'}"
  printf '%s\n' "$found"
}

uses_tls() { [[ $(setting "$1") == "tls "* ]]; }

# connect_with_tls: starts stunnel, now and at every boot. It connects each local port to the server of one home.
connect_with_tls() {
  local source=${BASH_SOURCE[0]%/*}/../units/$TLS_UNIT new=
  install_packages stunnel4
  put_file "$TLS_CONFIG" "$(tls_config)" && new=yes
  # User data also installs the unit; this covers machines that were set up over SSH.
  if put_file "/etc/systemd/system/$TLS_UNIT" "$(<"$source")"; then
    dry_run || systemctl daemon-reload
  fi
  [[ -z $new ]] || dry_run || systemctl stop "$TLS_UNIT" 2>/dev/null || true
  service_on "$TLS_UNIT"
}

# The options are those of the EFS mount helper (efs-utils 1.36: STUNNEL_EFS_CONFIG). Certificates of Amazon's authorities
# are verified with the certificates of the system, and must be for the name of the server.
tls_config() {
  local kind mount server name port=$TLS_FIRST_PORT
  printf '%s\n' 'fips = no' 'foreground = yes' 'pid =' 'socket = l:SO_REUSEADDR=yes'
  while read -r kind mount server name _; do
    [[ $kind == home ]] || continue
    uses_tls "$mount" || continue
    printf '%s\n' "[home-$port]" 'client = yes' "accept = 127.0.0.1:$port" "connect = $server:$HOME_TLS_PORT" \
      'sslVersion = TLSv1.2' 'renegotiation = no' 'TIMEOUTbusy = 20' 'TIMEOUTclose = 0' 'TIMEOUTidle = 70' 'delay = yes' \
      'verifyChain = yes' "checkHost = $server" 'CAfile = /etc/ssl/certs/ca-certificates.crt'
    port=$((port + 1))
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"
}

# prove_port MOUNT PORT: all homes with TLS have the same source, so the port shows which server is mounted.
prove_port() {
  local options
  options=$(findmnt -n -t nfs,nfs4 -o OPTIONS --mountpoint "$1" | sed -n 1p)
  [[ ,$options, == *",port=$2,"* ]] || die "$1 is mounted with the options $options, expected port=$2"
}

saved_homes() { printf '/var/lib/gpuinfra/homes%s\n' "${1//\//-}"; }

save_local_homes() {
  local mount=$1 copy
  copy=$(saved_homes "$mount")
  dry_run && return 0
  mountpoint -q "$mount" || ! compgen -G "$mount/*" >/dev/null || [[ -d $copy ]] || {
    rm -rf -- "$copy.new"
    cp -a -- "$mount" "$copy.new"
    mv -T -- "$copy.new" "$copy"
  }
}

# Existing files are not overwritten: another node may have copied the home first, and its user may have changed it.
restore_local_homes() {
  local copy home
  copy=$(saved_homes "$1")
  dry_run || [[ ! -d $copy ]] && return 0
  for home in "$copy"/*/; do
    home=${home%/}
    [[ -e $1/${home##*/} ]] || {
      copy_folder "$home" "$1/${home##*/}"
      changed "copied the home ${home##*/} to $1"
    }
  done
  rm -rf -- "$copy"
}

main "$@"
