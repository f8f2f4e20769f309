# shellcheck shell=bash
# What every step shares: how it speaks, what it proved, versions, files, services and modules.
# Packages are in lib-packages.sh, downloads and trust in lib-downloads.sh; both come with this file.
#
# A step sources this file, checks its tools and variables, changes what is missing, proves the result and ends.
# It reports through a file that the runner names (GPUINFRA_REPORT; without it the lines go to standard output):
#   record NAME VALUE   what was proven and is pinned from now on, such as `driver 580.126.20`
#   changed TEXT        something on this machine is different now
#   unchanged TEXT      it was already so
#   proved TEXT         the proof; the runner calls a step without one failed
#   would TEXT          what a dry run left alone
#
# Exit codes: 0 done, 194 done so far, go on after a reboot, 65 no use in trying again, anything else failed.
#
# Variables of the runner: GPUINFRA_REPORT (path), GPUINFRA_DRY_RUN (1: change nothing), GPUINFRA_VERSIONS (path of
# versions.env; without it the one beside this folder), GPUINFRA_FILE_SYSTEMS (lines of `kind mount dns_name mount_name`),
# GPUINFRA_UNFINISHED (path of a mark that is there from `begin_installing` until the journal says that the step is done).

readonly EXIT_REFUSED=65
readonly EXIT_REBOOT=194

export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l NEEDRESTART_SUSPEND=1
umask 022

# --- speaking ---------------------------------------------------------------------------------------------------

say() { printf '%s %s\n' "$(date -u +%H:%M:%SZ)" "$*"; }

_report() {
  if [[ -n ${GPUINFRA_REPORT:-} ]]; then
    printf '%s\t%s\n' "$1" "$2" >>"$GPUINFRA_REPORT"
  else
    printf '%s\t%s\n' "$1" "$2"
  fi
}

record() { _report record "$1"$'\t'"$2"; }
changed() {
  say "changed: $*"
  _report changed "$*"
}
unchanged() {
  say "unchanged: $*"
  _report unchanged "$*"
}
proved() {
  say "proved: $*"
  _report proved "$*"
}

# die TEXT: failed; the runner may try again.
die() {
  _report failed "$*"
  printf '%s\n' "$*" >&2
  exit 1
}

# refuse TEXT: failed, and trying again cannot help.
refuse() {
  _report failed "$*"
  printf '%s\n' "$*" >&2
  exit "$EXIT_REFUSED"
}

# reboot_needed TEXT: this step goes on after a reboot.
reboot_needed() {
  _report reboot "$*"
  say "a reboot is needed: $*"
  exit "$EXIT_REBOOT"
}

_on_error() {
  local status=$1 line=$2 command=$3
  _report failed "line $line: \`$command\` ended with exit code $status"
}
# Steps run with pipefail, so nothing here may close a pipe early: a reader that stops at the first line (head, grep -q,
# awk's exit) kills its writer by SIGPIPE once in a while, and a step would fail once in a hundred nodes.
set -E
trap '_on_error "$?" "$LINENO" "$BASH_COMMAND"' ERR

# --- dry run ----------------------------------------------------------------------------------------------------

dry_run() { [[ ${GPUINFRA_DRY_RUN:-} == 1 ]]; }

# would TEXT: true in a dry run, and says what is left alone. Use: would "install X" || install X
would() {
  dry_run || return 1
  say "would: $*"
  _report would "$*"
}

# end_dry_run: a step that had something to do cannot prove it in a dry run.
end_dry_run() {
  dry_run || return 0
  proved "nothing: this was a dry run"
  exit 0
}

# --- cut off ----------------------------------------------------------------------------------------------------

# begin_installing: from here on half of it may be there, until the runner has written down that the step is done.
begin_installing() {
  [[ -n ${GPUINFRA_UNFINISHED:-} ]] || return 0
  mkdir -p "${GPUINFRA_UNFINISHED%/*}"
  this_boot >"$GPUINFRA_UNFINISHED"
  sync "$GPUINFRA_UNFINISHED" 2>/dev/null || true
}

# cut_off: an earlier run of this step ended while it installed, so what answers now may be half of what belongs together.
cut_off() { [[ -n ${GPUINFRA_UNFINISHED:-} && -e $GPUINFRA_UNFINISHED ]]; }

this_boot() { cat /proc/sys/kernel/random/boot_id; }

# installed_in_boot: the boot in which this step last installed something; a step that was cut off by a reboot knows it by its mark.
installed_in_boot() {
  local boot=
  ! cut_off || boot=$(<"$GPUINFRA_UNFINISHED")
  printf '%s\n' "${boot:-$(this_boot)}"
}

# --- needs ------------------------------------------------------------------------------------------------------

load_versions() {
  local file=${GPUINFRA_VERSIONS:-${BASH_SOURCE[0]%/*}/../versions.env}
  [[ -r $file ]] || refuse "versions.env is missing at $file; fetch the bundle again"
  set -a
  # shellcheck disable=SC1090
  . "$file"
  set +a
}

# need_variables NAME...: each is set and not empty.
need_variables() {
  local name
  for name in "$@"; do
    [[ -n ${!name:-} ]] || refuse "$name is empty in versions.env; the plan chose this step, so it must set it"
  done
}

# need_tools NAME...: each is a command on PATH.
need_tools() {
  local name missing=()
  for name in "$@"; do
    command -v "$name" >/dev/null || missing+=("$name")
  done
  ((${#missing[@]} == 0)) || refuse "not on this machine: ${missing[*]}; this step was written for Ubuntu 22.04 and 24.04"
}

need_root() { ((EUID == 0)) || refuse "run this as root; now it runs as user $EUID"; }

# --- versions ---------------------------------------------------------------------------------------------------

# version_lt A B: A is older than B.
version_lt() { [[ $1 != "$2" && $(printf '%s\n%s\n' "$1" "$2" | sort -V | sed -n 1p) == "$1" ]]; }

# version_in VERSION MIN MAX: MIN <= VERSION < MAX; an empty bound is open.
version_in() {
  [[ -n $1 ]] || return 1
  [[ -z ${2:-} ]] || ! version_lt "$1" "$2" || return 1
  [[ -z ${3:-} ]] || version_lt "$1" "$3"
}

# accepted PREFIX VERSION: VERSION is the lock's pin, or inside the lock's range. PREFIX_VERSION, _RANGE_MIN, _RANGE_MAX.
accepted() {
  local pin=$1_VERSION min=$1_RANGE_MIN max=$1_RANGE_MAX
  [[ -n $2 ]] || return 1
  [[ $2 != "${!pin:-}" ]] || return 0
  [[ -n ${!min:-}${!max:-} ]] || return 1
  version_in "$2" "${!min:-}" "${!max:-}"
}

# wanted PREFIX: the pin and range in words.
wanted() {
  local pin=$1_VERSION min=$1_RANGE_MIN max=$1_RANGE_MAX
  printf '%s' "${!pin:-}"
  [[ -z ${!min:-}${!max:-} ]] || printf ' (or from %s up to below %s)' "${!min:-any}" "${!max:-any}"
}

# --- patience -------------------------------------------------------------------------------------------------

# retry TIMES WHAT COMMAND...: a few tries with growing pauses; what the command said last is the reason.
retry() {
  local times=$1 what=$2 try status said why pause=${GPUINFRA_RETRY_PAUSE_S:-3}
  shift 2
  said=$(mktemp -p /run gpuinfra-XXXXXX 2>/dev/null || mktemp)
  for ((try = 1; ; try++)); do
    status=0
    { "$@" 2>&1 >&3 | tee "$said" >&2; } 3>&1 || status=$?
    why=$(grep -v '^[[:space:]]*$' "$said" | tail -n 1 | cut -c 1-300) || true
    rm -f -- "$said"
    ((status != 0)) || return 0
    ((try < times)) || break
    say "$what failed with exit code $status (try $try of $times): $why; again in ${pause} s"
    sleep "$pause"
    pause=$((pause * 3))
  done
  die "$what failed $times times, the last with exit code $status: ${why:-it said nothing}"
}

# --- files ------------------------------------------------------------------------------------------------------

# put_file PATH TEXT: true when the file was changed, false when it was already so.
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

# service_on UNIT: enabled for the next boot and running now.
service_on() {
  if [[ $(systemctl is-enabled "$1" 2>/dev/null) != enabled ]]; then
    would "enable $1" || {
      systemctl enable "$1"
      changed "enabled $1"
    }
  fi
  if ! systemctl is-active --quiet "$1"; then
    would "start $1" || {
      systemctl start "$1" || die "$1 did not start: $(service_reason "$1")"
      changed "started $1"
    }
  fi
}

service_reason() { journalctl -u "$1" -b -n 4 --no-pager -o cat 2>/dev/null | awk '!seen[$0]++' | paste -sd ' ' - | cut -c 1-300; }

module_loaded() { lsmod | awk -v name="${1//-/_}" '$1 == name { found = 1 } END { exit !found }'; }

# load_module NAME: now and at every boot.
load_module() {
  put_file "/etc/modules-load.d/gpuinfra-$1.conf" "$1" || true
  module_loaded "$1" && return 0
  would "load module $1" && return 0
  modprobe "$1" || die "module $1 does not load into kernel $(uname -r): $(modprobe "$1" 2>&1 | tail -n 1)"
  changed "loaded module $1"
}

# module_fits NAME: it was built for the running kernel.
module_fits() { [[ $(modinfo -F vermagic "$1" 2>/dev/null) == "$(uname -r) "* ]]; }

# shellcheck source=bootstrap/lib-downloads.sh
. "${BASH_SOURCE[0]%/*}/lib-downloads.sh"
# shellcheck source=bootstrap/lib-packages.sh
. "${BASH_SOURCE[0]%/*}/lib-packages.sh"
