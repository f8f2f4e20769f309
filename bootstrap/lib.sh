# shellcheck shell=bash
# Shared by all steps: log and report, versions, files, services and modules.
# lib-packages.sh handles packages, lib-downloads.sh downloads and keys; this file sources both.
#
# A step sources this file, checks its tools and variables, changes what is missing, proves the result and exits.
# It reports to a file that the runner sets (GPUINFRA_REPORT; without it the lines go to standard output):
#   record NAME VALUE   a value that was proven and is pinned from now on, such as `driver 580.126.20`
#   changed TEXT        a change of this machine
#   unchanged TEXT      a state that was already correct
#   proved TEXT         the proof; without one the runner treats the step as failed
#   would TEXT          a change that a dry run skipped
#
# Exit codes: 0 done, 194 continue after a reboot, 65 failed and a retry cannot help, anything else failed.
#
# Variables from the runner: GPUINFRA_REPORT (path), GPUINFRA_DRY_RUN (1: change nothing), GPUINFRA_PROVE (1: only prove), GPUINFRA_VERSIONS (path of
# versions.env; default: next to this folder), GPUINFRA_FILE_SYSTEMS (lines of `kind mount dns_name mount_name`),
# GPUINFRA_CLIENT_ID (Azure: client ID of the nodes' identity; empty on other clouds),
# GPUINFRA_LOG_GROUP (AWS: name of the log group; empty on other clouds, and if the stack declares no logs),
# GPUINFRA_UNFINISHED (path of a file that exists from `begin_installing` until the journal records the step as done).

readonly EXIT_REFUSED=65
readonly EXIT_REBOOT=194

export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l NEEDRESTART_SUSPEND=1
umask 022

# --- log and report ---------------------------------------------------------------------------------------------

log() { printf '%s %s\n' "$(date -u +%H:%M:%SZ)" "$*"; }

_report() {
  if [[ -n ${GPUINFRA_REPORT:-} ]]; then
    printf '%s\t%s\n' "$1" "$2" >>"$GPUINFRA_REPORT"
  else
    printf '%s\t%s\n' "$1" "$2"
  fi
}

record() { _report record "$1"$'\t'"$2"; }
changed() {
  log "changed: $*"
  _report changed "$*"
}
unchanged() {
  log "unchanged: $*"
  _report unchanged "$*"
}
proved() {
  log "proved: $*"
  _report proved "$*"
}

# die TEXT: the step failed. The runner can retry it.
die() {
  _report failed "$*"
  printf '%s\n' "$*" >&2
  exit 1
}

# refuse TEXT: the step failed, and a retry cannot help.
refuse() {
  _report failed "$*"
  printf '%s\n' "$*" >&2
  exit "$EXIT_REFUSED"
}

# reboot_needed TEXT: this step continues after a reboot.
reboot_needed() {
  _report reboot "$*"
  log "reboot needed: $*"
  exit "$EXIT_REBOOT"
}

_on_error() {
  local status=$1 line=$2 command=$3
  _report failed "line $line: \`$command\` failed with exit code $status"
}
# Steps run with pipefail, so commands must not close a pipe early: a reader that stops at the first line (head, grep -q,
# awk's exit) occasionally kills its writer with SIGPIPE, and the step would fail on one in a hundred nodes.
set -E
trap '_on_error "$?" "$LINENO" "$BASH_COMMAND"' ERR

# --- dry run ----------------------------------------------------------------------------------------------------

dry_run() { [[ ${GPUINFRA_DRY_RUN:-} == 1 ]]; }

# would TEXT: in a dry run, reports the skipped change and returns true. Usage: would "install X" || install X
would() {
  dry_run || return 1
  _CHANGE_SKIPPED=1
  log "would: $*"
  _report would "$*"
}

# end_dry_run: ends a dry run before the proof, because nothing was changed. After a boot, the runner asks for the proof of a step that is done
# (GPUINFRA_PROVE=1): the step runs dry up to here, and its proof follows if it would change nothing.
end_dry_run() {
  dry_run || return 0
  if [[ ${GPUINFRA_PROVE:-} == 1 && -z ${_CHANGE_SKIPPED:-} ]]; then
    GPUINFRA_DRY_RUN=0
    return 0
  fi
  proved "nothing: this was a dry run"
  exit 0
}

# --- interrupted runs -------------------------------------------------------------------------------------------

# begin_installing: from here until the runner records the step as done, an installation may be incomplete.
begin_installing() {
  [[ -n ${GPUINFRA_UNFINISHED:-} ]] || return 0
  mkdir -p "${GPUINFRA_UNFINISHED%/*}"
  this_boot >"$GPUINFRA_UNFINISHED"
  sync "$GPUINFRA_UNFINISHED" 2>/dev/null || true
}

# interrupted: an earlier run of this step ended while it installed, so the installed files may be incomplete.
interrupted() { [[ -n ${GPUINFRA_UNFINISHED:-} && -e $GPUINFRA_UNFINISHED ]]; }

this_boot() { cat /proc/sys/kernel/random/boot_id; }

# installed_in_boot: the boot in which this step last installed something; after an interruption by a reboot, the boot in its mark.
installed_in_boot() {
  local boot=
  ! interrupted || boot=$(<"$GPUINFRA_UNFINISHED")
  printf '%s\n' "${boot:-$(this_boot)}"
}

# --- requirements -----------------------------------------------------------------------------------------------

load_versions() {
  local file=${GPUINFRA_VERSIONS:-${BASH_SOURCE[0]%/*}/../versions.env}
  [[ -r $file ]] || refuse "versions.env does not exist at $file; fetch the bundle again"
  set -a
  # shellcheck disable=SC1090
  . "$file"
  set +a
}

# need_variables NAME...: requires each variable to be set and not empty.
need_variables() {
  local name
  for name in "$@"; do
    [[ -n ${!name:-} ]] || refuse "$name is empty in versions.env; the plan must set it for this step"
  done
}

# need_tools NAME...: requires each command in PATH.
need_tools() {
  local name missing=()
  for name in "$@"; do
    command -v "$name" >/dev/null || missing+=("$name")
  done
  ((${#missing[@]} == 0)) || refuse "missing commands: ${missing[*]}; this step supports Ubuntu 22.04 and 24.04"
}

need_root() { ((EUID == 0)) || refuse "run this as root; the current user is $EUID"; }

# --- versions ---------------------------------------------------------------------------------------------------

# version_lt A B: true if A is older than B.
version_lt() { [[ $1 != "$2" && $(printf '%s\n%s\n' "$1" "$2" | sort -V | sed -n 1p) == "$1" ]]; }

# version_in VERSION MIN MAX: true if MIN <= VERSION < MAX. An empty bound is open.
version_in() {
  [[ -n $1 ]] || return 1
  [[ -z ${2:-} ]] || ! version_lt "$1" "$2" || return 1
  [[ -z ${3:-} ]] || version_lt "$1" "$3"
}

# accepted PREFIX VERSION: true if VERSION is the lock's pin or inside its range. Reads PREFIX_VERSION, _RANGE_MIN, _RANGE_MAX.
accepted() {
  local pin=$1_VERSION min=$1_RANGE_MIN max=$1_RANGE_MAX
  [[ -n $2 ]] || return 1
  [[ $2 != "${!pin:-}" ]] || return 0
  [[ -n ${!min:-}${!max:-} ]] || return 1
  version_in "$2" "${!min:-}" "${!max:-}"
}

# wanted PREFIX: prints pin and range.
wanted() {
  local pin=$1_VERSION min=$1_RANGE_MIN max=$1_RANGE_MAX
  printf '%s' "${!pin:-}"
  [[ -z ${!min:-}${!max:-} ]] || printf ' (or from %s up to below %s)' "${!min:-any}" "${!max:-any}"
}

# --- retries --------------------------------------------------------------------------------------------------

# retry TIMES WHAT COMMAND...: attempts with increasing pauses. It is also the only way to change packages: while another process holds
# a lock of apt or dpkg, the attempts do not count, because that process ends: an unattended upgrade takes minutes.
retry() {
  local times=$1 what=$2 try=1 status output why pause=${GPUINFRA_RETRY_PAUSE_S:-3} until
  shift 2
  until=$(($(uptime_s) + ${GPUINFRA_LOCK_PATIENCE_S:-480}))
  output=$(mktemp -p /run gpuinfra-XXXXXX 2>/dev/null || mktemp)
  while :; do
    status=0
    "$@" 2>&1 | tee "$output" || status=$?
    ((status != 0)) || break
    why=$(cause_in "$output" | cut -c 1-300) || true
    if locked "$output" && (($(uptime_s) < until)); then
      log "$what waits: $(grep -E 'held by process|with pid' "$output" | sed -n 1p)"
      sleep "${GPUINFRA_LOCK_PAUSE_S:-5}"
      continue
    fi
    ((try < times)) || break
    log "$what failed with exit code $status (attempt $try of $times): $why; retrying in ${pause} s"
    sleep "$pause"
    pause=$((pause * 3))
    try=$((try + 1))
  done
  rm -f -- "$output"
  ((status == 0)) || die "$what failed $times times, last with exit code $status: ${why:-no output}"
}

# uptime_s: seconds since boot, which do not jump when the clock is set.
uptime_s() { cut -d . -f 1 /proc/uptime; }

# locked FILE: true if a command failed because another process holds a lock of apt or dpkg (texts of apt 2.6.1 and dpkg 1.21.22).
# `Waiting for cache lock: Could not get lock` is no failure.
locked() { grep -qE '^E: Could not get lock|^E: Unable to acquire the dpkg frontend lock|was locked by another process' "$1"; }

# cause_in FILE: prints the line of a command's output that names the cause. The first of these that exists: an error of a disk; an error
# of dkms, with the file that it names; the first error of apt or dpkg; the reason why dpkg could not process a package; the last line.
# apt's `E: Sub-process /usr/bin/dpkg returned an error code (1)` and `E: mkinitramfs failure` only follow from another line.
cause_in() {
  awk '
    /No space left on device|Read-only file system|Input\/output error|Structure needs cleaning|Cannot allocate memory|Disk quota exceeded/ { if (!disk) disk = $0 }
    /^Consult / { if (module && !named) module = module " " $0; named = 1 }
    /^Error! / { if (!module) module = $0 }
    reason == "next" { reason = package $0 }
    /^dpkg: error processing / { if (!reason) { reason = "next"; package = $0 } next }
    /^(E|dpkg: error|dpkg: unrecoverable fatal error): / && !/^E: (Sub-process|mkinitramfs failure|Unable to fetch some archives)/ { if (!error) error = $0 }
    /[^ \t]/ { last = $0 }
    END {
      cause = disk ? disk : module ? module : error ? error : reason && reason != "next" ? reason : last
      sub(/^[ \t]+/, "", cause)
      print cause
    }' "$1"
}

# --- files ------------------------------------------------------------------------------------------------------

# put_file PATH TEXT: true if the file was changed, false if it already had this content.
put_file() {
  local path=$1 text=$2
  if [[ -f $path ]] && [[ $(<"$path") == "$text" ]]; then
    return 1
  fi
  would "write $path" && return 0
  mkdir -p "${path%/*}"
  printf '%s\n' "$text" >"$path.gpuinfra-new"
  mv -f -- "$path.gpuinfra-new" "$path"
  changed "wrote $path"
}

# --- services and modules ---------------------------------------------------------------------------------------

# at_boot UNIT: enables UNIT for the next boot. A unit without [Install] is static: another unit must want it.
at_boot() {
  local state
  state=$(systemctl is-enabled "$1" 2>/dev/null) || true
  if [[ $state != enabled ]]; then
    would "enable $1" || {
      if [[ $state == static ]]; then
        systemctl add-wants multi-user.target "$1"
      else
        systemctl enable "$1"
      fi
      changed "enabled $1"
    }
  fi
}

# service_on UNIT: enables UNIT for the next boot and starts it now.
service_on() {
  at_boot "$1"
  if ! systemctl is-active --quiet "$1"; then
    would "start $1" || {
      systemctl start "$1" || die "$1 did not start: $(service_reason "$1")"
      changed "started $1"
    }
  fi
}

service_reason() { journalctl -u "$1" -b -n 4 --no-pager -o cat 2>/dev/null | awk '!seen[$0]++' | paste -sd ' ' - | cut -c 1-300; }

# The source address of packets to an address outside; 192.0.2.1 is reserved for documentation, and nothing is sent.
private_address() { ip -4 -o route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p'; }

# metrics_at URL: prints what an exporter of this node serves.
metrics_at() { curl -s --noproxy '*' --max-time 10 "$@"; }

module_loaded() { lsmod | awk -v name="${1//-/_}" '$1 == name { found = 1 } END { exit !found }'; }

# load_module NAME: loads the module now and at every boot.
load_module() {
  put_file "/etc/modules-load.d/gpuinfra-$1.conf" "$1" || true
  module_loaded "$1" && return 0
  would "load module $1" && return 0
  modprobe "$1" || die "kernel $(uname -r) cannot load module $1: $(modprobe "$1" 2>&1 | tail -n 1)"
  changed "loaded module $1"
}

# module_fits NAME: true if the module was built for the running kernel.
module_fits() { [[ $(modinfo -F vermagic "$1" 2>/dev/null) == "$(uname -r) "* ]]; }

# shellcheck source=bootstrap/lib-downloads.sh
. "${BASH_SOURCE[0]%/*}/lib-downloads.sh"
# shellcheck source=bootstrap/lib-packages.sh
. "${BASH_SOURCE[0]%/*}/lib-packages.sh"
