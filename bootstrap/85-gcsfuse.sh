#!/usr/bin/env bash
# Mounts Cloud Storage buckets with Cloud Storage FUSE, with a cache on the machine's local disks.
#
# Reads:  BUCKETS                 `name mount ro|rw cache` for each bucket, cache in GiB: data-0 /data ro 600; out-0 /out rw 600
#         GCSFUSE_VERSION         3.11.2
#         GCSFUSE_RANGE_MIN, _MAX versions that an image may contain: 3, 4 (excluded)
#         GCSFUSE_REPOSITORY, _SUITE           https://packages.cloud.google.com/apt; `gcsfuse-noble main`
#         GCSFUSE_KEY_URL, _KEY_FINGERPRINT    the repository's key; 40 hex digits
#         SCRATCH_MOUNT, SCRATCH_OF_IMAGE      mount points of the local disks (80-scratch); empty if the machine has none
#         GPUINFRA_FILE_SYSTEMS   lines of `kind mount dns_name mount_name`, from node.json; mount_name is the bucket
# Proves: each mount shows its own bucket and looks up a name in it, a writable mount returns what was written to it, and a read-only
#         mount is read-only.
# A unit mounts each bucket, so that the process of the file system runs in the unit instead of in this step.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"

readonly TYPE=fuse.gcsfuse

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query findmnt journalctl mountpoint systemctl
  need_variables BUCKETS GCSFUSE_VERSION
  local name mount mode cache bucket mounted=()

  if ! interrupted && accepted GCSFUSE "$(installed)"; then
    unchanged "Cloud Storage FUSE $(installed) is installed; the lock accepts $(wanted GCSFUSE)"
  else
    install_gcsfuse
  fi
  while read -r name mount mode cache; do
    bucket=$(bucket_at "$mount")
    [[ -n $bucket ]] || refuse "node.json lists no bucket for $mount, but the plan has one; declare it in the stack that creates the site, deploy that stack, and replace the node"
    mount_bucket "$name" "$mount" "$mode" "$cache" "$bucket"
    mounted+=("$mount")
  done <<<"${BUCKETS//; /$'\n'}"

  end_dry_run
  accepted GCSFUSE "$(installed)" || die "Cloud Storage FUSE is $(installed), but the lock accepts $(wanted GCSFUSE)"
  while read -r name mount mode cache; do
    prove_bucket "$mount" "$mode" "$(bucket_at "$mount")"
  done <<<"${BUCKETS//; /$'\n'}"
  record gcsfuse "$(installed)"
  proved "Cloud Storage FUSE $(installed) mounts the buckets at ${mounted[*]}"
}

installed() { package_version gcsfuse; }

install_gcsfuse() {
  need_variables GCSFUSE_REPOSITORY GCSFUSE_SUITE GCSFUSE_KEY_URL GCSFUSE_KEY_FINGERPRINT
  need_tools gpg curl
  add_repository gcsfuse "$GCSFUSE_REPOSITORY" "$GCSFUSE_SUITE" "$GCSFUSE_KEY_URL" "$GCSFUSE_KEY_FINGERPRINT"
  install_packages "gcsfuse=$GCSFUSE_VERSION"
}

bucket_at() {
  local kind mount bucket
  while read -r kind mount _ bucket; do
    [[ $kind != object || $mount != "$1" ]] || printf '%s\n' "$bucket"
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"
}

# mount_bucket NAME MOUNT MODE CACHE BUCKET
mount_bucket() {
  local name=$1 mount=$2 bucket=$5 unit=gpuinfra-bucket-$1.service scratch='' new=
  if (($4 > 0)); then
    scratch=$(mounted_scratch)
    [[ -n $scratch ]] || dry_run || die "$mount has a cache of $4 GiB, but the local disks are not mounted; see the step 80-scratch"
    dry_run || install -d -m 0700 "$scratch/gpuinfra-buckets" "$scratch/gpuinfra-buckets/$name" "$scratch/gpuinfra-buckets/$name/upload"
  fi
  if put_file "/etc/systemd/system/$unit" "$(unit_text "$mount" "$3" "$4" "$bucket" "${scratch:+$scratch/gpuinfra-buckets/$name}")"; then
    new=yes
    dry_run || systemctl daemon-reload
  fi
  # A file system whose process ended stays mounted, and mkdir and a new mount fail on it.
  if [[ -n $(source_of "$TYPE" "$mount") ]] && ! stat -- "$mount" >/dev/null 2>&1; then
    would "unmount $mount, whose process ended" || umount -l "$mount"
  fi
  dry_run || mkdir -p "$mount"
  at_boot "$unit"
  [[ -n $new || $(source_of "$TYPE" "$mount") != "$bucket" ]] || return 0
  would "mount $mount" && return 0
  systemctl stop "$unit"
  # A new permission reaches Cloud Storage after some minutes.
  retry 4 "mounting $mount" start_unit "$unit"
  changed "mounted the bucket $bucket at $mount"
}

# start_unit UNIT: the cause is at the end of the client's message, after the functions that returned it.
start_unit() {
  systemctl start "$1" 2>/dev/null && return 0
  journalctl -u "$1" -t gcsfuse -b -n 1 -o cat --no-pager | sed -E 's/^.*(SetUpBucket|OpenBucket): //' | cut -c 1-300 >&2
  return 1
}

# unit_text MOUNT MODE CACHE BUCKET FOLDER: options of `gcsfuse --help`. Without a limit, metadata is cached forever on large machine types.
# -l: a mount in use is busy, and so is one whose process ended; a new process fails on it (troubleshooting.md of gcsfuse v3.11.2).
# OOMScoreAdjust: a process of a user that fills the memory must not take the bucket of all users with it.
unit_text() {
  local mount=$1 files=666 folders=777 options='' requires=''
  if [[ $2 == ro ]]; then
    files=444 folders=555 options=' -o ro'
  fi
  [[ -z $5 ]] || options+=" --cache-dir=$5 --file-cache-max-size-mb=$(($3 * 1024)) --temp-dir=$5/upload"
  [[ -z $5 ]] || requires="RequiresMountsFor=$5"
  printf '%s\n' "[Unit]
Description=gpuinfra: mount the bucket $4 at $mount
Wants=network-online.target
After=network-online.target
Before=remote-fs.target gpuinfra-verify.service
$requires

[Service]
Type=oneshot
RemainAfterExit=yes
SyslogIdentifier=gcsfuse
ExecStartPre=-/usr/bin/env umount -q -l $mount
ExecStart=/usr/bin/env gcsfuse -o allow_other$options --implicit-dirs --file-mode=$files --dir-mode=$folders --metadata-cache-ttl-secs=60 $4 $mount
ExecStop=-/usr/bin/env umount -l $mount
TimeoutStartSec=300
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target"
}

# prove_bucket MOUNT MODE BUCKET: looks up a name that does not exist, with few requests. A list reads all pages of the bucket
# before its first entry (gcsfuse v3.11.2, internal/fs/handle/dir_handle.go).
prove_bucket() {
  local mount=$1 mode=$2 found
  [[ $(source_of "$TYPE" "$mount") == "$3" ]] || die "$mount shows $(source_of "$TYPE" "$mount"), expected the bucket $3"
  found=$(LC_ALL=C stat -- "$mount/.gpuinfra-absent-$(uname -n)-$$-$RANDOM" 2>&1) || [[ $found == *": No such file or directory" ]] ||
    die "a name in $mount cannot be looked up: ${found##*: }"
  found=$(findmnt -n -t "$TYPE" -o OPTIONS --mountpoint "$mount" | sed -n 1p)
  [[ ,$found, == *",$mode,"* ]] || die "$mount is mounted with the options $found, expected $mode"
  [[ $mode == ro ]] || prove_mount "$TYPE" "$mount" "$3"
}

main "$@"
