# shellcheck shell=bash
# Mounted buckets: the client of the cloud, and a unit for each bucket. Sourced after lib-mounts.sh by the steps that mount buckets.
#
# A step defines CLIENT (prefix of its variables), PACKAGE, PROGRAM, TITLE, and TYPE (of the file system in the list of mounts), and:
#   install_client                                 installs the version of the lock
#   client_command MOUNT MODE CACHE BUCKET FOLDER CONFIG  prints the command that mounts the bucket; FOLDER is empty without a cache
#   client_config MOUNT MODE CACHE BUCKET FOLDER   prints the text of a configuration file, or nothing
#   client_folders FOLDER                          prints the folders that the client requires, with FOLDER
#   shows_bucket MOUNT BUCKET UNIT                 true if the bucket is mounted at MOUNT
#   mount_cause                                    reads the client's messages, and prints why it mounted nothing

# mount_buckets: installs the client, mounts the buckets, and proves the mounts.
mount_buckets() {
  local name mount mode cache bucket mounted=()
  if ! interrupted && accepted "$CLIENT" "$(installed)"; then
    unchanged "$TITLE $(installed) is installed; the lock accepts $(wanted "$CLIENT")"
  else
    install_client
  fi
  while read -r name mount mode cache; do
    bucket=$(bucket_at "$mount")
    [[ -n $bucket ]] || refuse "node.json lists no bucket for $mount, but the plan has one; declare it in the stack that creates the site, deploy that stack, and replace the node"
    mount_bucket "$name" "$mount" "$mode" "$cache" "$bucket"
    mounted+=("$mount")
  done <<<"${BUCKETS//; /$'\n'}"

  end_dry_run
  accepted "$CLIENT" "$(installed)" || die "$TITLE is $(installed), but the lock accepts $(wanted "$CLIENT")"
  while read -r name mount mode cache; do
    prove_bucket "$name" "$mount" "$mode" "$(bucket_at "$mount")"
  done <<<"${BUCKETS//; /$'\n'}"
  record "${CLIENT,,}" "$(installed)"
  proved "$TITLE $(installed) mounts the buckets at ${mounted[*]}"
}

installed() { package_version "$PACKAGE"; }

unit_of() { printf 'gpuinfra-bucket-%s.service\n' "$1"; }

# config_of UNIT: the path of the configuration file.
config_of() { printf '/etc/%s.yaml\n' "${1%.service}"; }

bucket_at() { _object_at "$1" | cut -d ' ' -f 2; }

# server_at MOUNT: prints the address of the service that stores the bucket.
server_at() { _object_at "$1" | cut -d ' ' -f 1; }

_object_at() {
  local kind mount server bucket
  while read -r kind mount server bucket; do
    [[ $kind != object || $mount != "$1" ]] || printf '%s %s\n' "$server" "$bucket"
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"
}

# mount_bucket NAME MOUNT MODE CACHE BUCKET
mount_bucket() {
  local name=$1 mount=$2 bucket=$5 unit scratch='' config new=
  unit=$(unit_of "$name")
  if (($4 > 0)); then
    scratch=$(mounted_scratch)
    [[ -n $scratch ]] || dry_run || die "$mount has a cache of $4 GiB, but the local disks are not mounted; see step 80-scratch"
  fi
  scratch=${scratch:+$scratch/gpuinfra-buckets/$name}
  config=$(client_config "$mount" "$3" "$4" "$bucket" "$scratch")
  [[ -z $config ]] || ! put_file "$(config_of "$unit")" "$config" || new=yes
  if put_file "/etc/systemd/system/$unit" "$(unit_text "$mount" "$3" "$4" "$bucket" "$scratch" "$(config_of "$unit")")"; then
    new=yes
    dry_run || systemctl daemon-reload
  fi
  # A file system whose process ended stays mounted, and mkdir and a new mount fail on it.
  if [[ -n $(source_of "$TYPE" "$mount") ]] && ! stat -- "$mount" >/dev/null 2>&1; then
    would "unmount $mount, whose process ended" || umount -l "$mount"
  fi
  dry_run || mkdir -p "$mount"
  at_boot "$unit"
  [[ -n $new ]] || ! shows_bucket "$mount" "$bucket" "$unit" || return 0
  would "mount $mount" && return 0
  systemctl stop "$unit"
  # A new permission reaches the service after some minutes.
  retry 4 "mounting $mount" start_unit "$unit"
  changed "mounted the bucket $bucket at $mount"
}

start_unit() {
  systemctl start "$1" 2>/dev/null && return 0
  journalctl -u "$1" -t "$PROGRAM" -b -n 20 -o cat --no-pager | mount_cause | cut -c 1-300 >&2
  return 1
}

# unit_text MOUNT MODE CACHE BUCKET FOLDER CONFIG: the client becomes a daemon after it mounts the bucket. If it fails, systemd restarts it.
# -l: a mount in use is busy, and so is one whose process ended; a new process fails on it (troubleshooting.md of gcsfuse v3.11.2).
# OOMScoreAdjust: a user's process that fills the memory must not stop the mount that all users share.
unit_text() {
  local mount=$1 cache=''
  # Users can write in the folder of the local disks, so a folder of the cache is used only if root created it, and a link is not followed.
  [[ -z $5 ]] || cache="ExecStartPre=/usr/bin/env bash -c 'for d; do mkdir -m 0700 -- \$d 2>/dev/null || [[ -d \$d && ! -L \$d && -O \$d ]] || { echo \$d is not a folder of root >&2; exit 1; }; done' cache ${5%/*} $(client_folders "$5")"
  printf '%s\n' "[Unit]
Description=gpuinfra: mount the bucket $4 at $mount
Wants=network-online.target
After=network-online.target
Before=remote-fs.target gpuinfra-verify.service
StartLimitIntervalSec=0
${5:+RequiresMountsFor=$5}

[Service]
Type=forking
SyslogIdentifier=$PROGRAM
ExecStartPre=-/usr/bin/env umount -q -l $mount
$cache
ExecStart=/usr/bin/env $(client_command "$@")
ExecStop=-/usr/bin/env umount -l $mount
Restart=on-failure
RestartSec=10
TimeoutStartSec=300
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target"
}

# runs_with UNIT WORDS: true if the command line of the unit's process contains the words. Some clients do not show the name of the
# bucket in the list of mounts.
runs_with() {
  local pid
  pid=$(systemctl show -p MainPID --value "$1")
  [[ ${pid:-0} != 0 && " $(tr '\0' ' ' <"/proc/$pid/cmdline")" == *" $2 "* ]]
}

# prove_bucket NAME MOUNT MODE BUCKET: looks up a name that does not exist, with few requests. A list reads all pages of the bucket
# before its first entry (gcsfuse v3.11.2, internal/fs/handle/dir_handle.go).
prove_bucket() {
  local mount=$2 mode=$3 found
  found=$(source_of "$TYPE" "$mount")
  shows_bucket "$mount" "$4" "$(unit_of "$1")" || die "$mount shows ${found:-nothing}, expected the bucket $4, which $(unit_of "$1") mounts"
  found=$(LC_ALL=C stat -- "$mount/.gpuinfra-absent-$(uname -n)-$$-$RANDOM" 2>&1) || [[ $found == *": No such file or directory" ]] ||
    die "a name in $mount cannot be looked up: ${found##*: }"
  found=$(findmnt -n -t "$TYPE" -o OPTIONS --mountpoint "$mount" | sed -n 1p)
  [[ ,$found, == *",$mode,"* ]] || die "$mount is mounted with the options $found, expected $mode"
  [[ $mode == ro ]] || prove_mount "$TYPE" "$mount" "$(source_of "$TYPE" "$mount")"
}
