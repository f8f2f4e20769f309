# shellcheck shell=bash
# What every step shares: how it speaks, what it proved, packages, downloads, versions, services, files.
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
# versions.env; without it the one beside this folder), GPUINFRA_FILE_SYSTEMS (lines of `kind mount dns_name mount_name`).

readonly EXIT_REFUSED=65
readonly EXIT_REBOOT=194
readonly KEYRINGS=/etc/apt/keyrings
readonly APT_OPTIONS=(
  -y -q
  -o DPkg::Lock::Timeout=600 # cloud images start their own apt at first boot
  -o Acquire::Retries=3
  -o Dpkg::Use-Pty=0
  -o Dpkg::Options::=--force-confdef
  -o Dpkg::Options::=--force-confold
  --no-install-recommends
)

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

# --- packages ---------------------------------------------------------------------------------------------------

# package_version NAME: the installed version, empty when it is not wholly installed.
package_version() {
  local status version
  while IFS=$'\t' read -r status version; do
    [[ $status != ?i* ]] || printf '%s\n' "$version"
  done < <(dpkg-query -W -f='${db:Status-Abbrev}\t${Version}\n' "$1" 2>/dev/null || true) | sed -n 1p
}

# packages_matching GLOB...: names of the installed packages that match.
packages_matching() {
  local status name
  while IFS=$'\t' read -r status name; do
    [[ $status != ?i* ]] || printf '%s\n' "$name"
  done < <(dpkg-query -W -f='${db:Status-Abbrev}\t${Package}\n' "$@" 2>/dev/null || true) | sort -u
}

# package_known NAME: apt has a candidate for it.
package_known() { [[ -n $(package_candidate "$1") ]]; }

# package_candidate NAME: the version that apt would install, empty when it knows none.
package_candidate() {
  local candidate
  candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
  [[ $candidate == "(none)" ]] || printf '%s\n' "$candidate"
}

# apt_refresh: read the repositories' lists, once per step.
apt_refresh() {
  [[ -z ${_APT_REFRESHED:-} ]] || return 0
  retry 4 "reading the package lists" apt-get "${APT_OPTIONS[@]}" -o APT::Update::Error-Mode=any update
  _APT_REFRESHED=1
}

# mend_packages: finish what a killed run left behind. Configuring is not enough where the kill came between a package
# and the one it depends on; then apt has to bring the missing one.
mend_packages() {
  local torn
  # dpkg's own journal left over: apt refuses to work until dpkg has read it, though no package is broken.
  [[ -n $(dpkg --audit 2>/dev/null) ]] || compgen -G '/var/lib/dpkg/updates/[0-9]*' >/dev/null || return 0
  would "finish half-installed packages" && return 0
  dpkg --force-confdef --force-confold --configure -a || true
  if [[ -n $(dpkg --audit) ]]; then
    apt_refresh
    # Unpacked in part: only unpacking it again helps, and --fix-broken alone leaves it so.
    mapfile -t torn < <(dpkg-query -W -f='${db:Status-Abbrev}\t${Package}\n' 2>/dev/null | sed -n 's/^..R\t//p')
    retry 2 "mending half-installed packages" \
      apt-get "${APT_OPTIONS[@]}" --allow-change-held-packages --fix-broken --reinstall install "${torn[@]}"
  fi
  [[ -z $(dpkg --audit) ]] || die "packages are still half installed: $(dpkg --audit | sed -n 's/^ \([a-z0-9]\)/\1/p' | sed -n 1p)"
  changed "finished packages that an interrupted run had left half installed"
}

# install_packages SPEC...: NAME, NAME=VERSION or NAME=GLOB; installs those that are not there at that version.
install_packages() {
  local spec name version installed missing=()
  for spec in "$@"; do
    name=${spec%%=*}
    version=
    [[ $spec != *=* ]] || version=${spec#*=}
    installed=$(package_version "$name")
    # shellcheck disable=SC2053  # the version may be a glob
    [[ -n $installed && (-z $version || $installed == $version) ]] || missing+=("$spec")
  done
  if ((${#missing[@]} == 0)); then
    unchanged "installed: $*"
    return 0
  fi
  would "install ${missing[*]}" && return 0
  mend_packages
  apt_refresh
  retry 3 "installing ${missing[*]}" \
    apt-get "${APT_OPTIONS[@]}" --allow-downgrades --allow-change-held-packages install "${missing[@]}"
  changed "installed ${missing[*]}"
}

# hold PACKAGE...: apt leaves them alone from now on.
hold() {
  local name held todo=()
  held=$(apt-mark showhold)
  for name in "$@"; do
    grep -qxF -- "$name" <<<"$held" || todo+=("$name")
  done
  ((${#todo[@]} > 0)) || return 0
  would "hold ${todo[*]}" && return 0
  apt-mark hold "${todo[@]}" >/dev/null
  changed "held ${todo[*]}"
}

# add_repository NAME URI SUITE_AND_COMPONENTS KEY_URL FINGERPRINT: signed by that key and no other.
add_repository() {
  local name=$1 uri suite=$3 key_url=$4 fingerprint=$5 keyring=$KEYRINGS/$1.gpg
  uri=$(mirrored "$2")
  if ! [[ -s $keyring ]] || [[ $(key_fingerprints "$keyring") != *"$fingerprint"* ]]; then
    would "trust the key $fingerprint for repository $name" || fetch_key "$key_url" "$fingerprint" "$keyring"
  fi
  if put_file "/etc/apt/sources.list.d/$name.list" "deb [signed-by=$keyring] $uri $suite"; then
    unset _APT_REFRESHED
  fi
}

# use_nvidia_repository: by the package that brings its key and its list. CUDA_KEYRING_URL, CUDA_KEYRING_SHA256.
use_nvidia_repository() {
  local deb
  [[ -z $(package_version cuda-keyring) ]] || return 0
  would "add NVIDIA's repository" && return 0
  need_variables CUDA_KEYRING_URL CUDA_KEYRING_SHA256
  need_tools curl
  deb=$(work_folder nvidia)/cuda-keyring.deb
  fetch "$CUDA_KEYRING_URL" "$CUDA_KEYRING_SHA256" "$deb"
  dpkg -i "$deb"
  point_at_mirror /etc/apt/sources.list.d/cuda-*.list
  unset _APT_REFRESHED
  changed "added NVIDIA's repository"
}

# point_at_mirror LIST...: repositories that a vendor's package wrote are looked for below MIRROR_URL.
point_at_mirror() {
  local list
  [[ -n ${MIRROR_URL:-} ]] || return 0
  for list in "$@"; do
    [[ -f $list ]] || continue
    grep -qF "${MIRROR_URL%/}/" "$list" || sed -Ei "s|https?://|${MIRROR_URL%/}/|" "$list"
  done
}

# --- downloads --------------------------------------------------------------------------------------------------

# mirrored URL: the same below MIRROR_URL (https://vendor/path becomes MIRROR_URL/vendor/path), for networks without internet.
mirrored() {
  if [[ -n ${MIRROR_URL:-} && $1 == http*://* ]]; then
    printf '%s/%s\n' "${MIRROR_URL%/}" "${1#*://}"
  else
    printf '%s\n' "$1"
  fi
}

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

_download() {
  curl -fsS --proto '=http,https' --location --connect-timeout 20 --max-time 900 --speed-limit 1024 --speed-time 60 \
    -o "$2" "$1"
}

# download URL DEST: without a checksum; only for what a signature or a fingerprint proves afterwards.
download() {
  local url part
  url=$(mirrored "$1")
  part=$2.part
  retry 4 "downloading $url" _download "$url" "$part"
  mv -f -- "$part" "$2"
}

# fetch URL SHA256 DEST: the file with that checksum or none.
fetch() {
  local url=$1 sha256=$2 dest=$3 found
  if [[ -f $dest ]] && [[ $(file_sha256 "$dest") == "$sha256" ]]; then
    return 0
  fi
  download "$url" "$dest.new"
  found=$(file_sha256 "$dest.new")
  if [[ $found != "$sha256" ]]; then
    rm -f -- "$dest.new"
    die "$(mirrored "$url") has the SHA-256 $found, but the lock says $sha256; it is damaged or not the vendor's"
  fi
  mv -f -- "$dest.new" "$dest"
}

file_sha256() { sha256sum -- "$1" | cut -d ' ' -f 1; }

# key_fingerprints FILE: fingerprints of the primary keys in it.
key_fingerprints() {
  gpg --batch --show-keys --with-colons "$1" 2>/dev/null |
    awk -F: '$1 == "pub" { primary = 1 } $1 == "sub" { primary = 0 } $1 == "fpr" && primary { print $10; primary = 0 }'
}

# fetch_key URL FINGERPRINT DEST: a keyring that holds that key alone.
fetch_key() {
  local url=$1 fingerprint=$2 dest=$3 work found
  work=$(work_folder key)
  download "$url" "$work/key"
  found=$(key_fingerprints "$work/key")
  if [[ $found != "$fingerprint" ]]; then
    refuse "the key at $url has the fingerprint ${found:-none}, but the lock says $fingerprint; ask the vendor before trusting it"
  fi
  rm -f -- "$work/key.gpg"
  gpg --batch --dearmor -o "$work/key.gpg" "$work/key"
  mkdir -p "${dest%/*}"
  install -m 0644 "$work/key.gpg" "$dest.new"
  mv -f -- "$dest.new" "$dest"
  changed "trusted the key $fingerprint in $dest"
}

# verify_signature FILE SIGNATURE KEY_FILE FINGERPRINT: FILE is signed by that key (or its subkey) and no other.
verify_signature() {
  local file=$1 signature=$2 key=$3 fingerprint=$4 home status
  [[ $(key_fingerprints "$key") == "$fingerprint" ]] ||
    refuse "the key in $key has not the fingerprint $fingerprint that the lock names"
  home=$(mktemp -d)
  chmod 700 "$home"
  gpg --batch --homedir "$home" --import "$key" 2>/dev/null
  status=$(gpg --batch --homedir "$home" --status-fd 1 --verify "$signature" "$file" 2>/dev/null || true)
  gpgconf --homedir "$home" --kill all 2>/dev/null || true
  rm -rf -- "$home"
  grep -q "^\[GNUPG:\] VALIDSIG .*$fingerprint" <<<"$status" ||
    die "the signature of ${file##*/} does not fit the key $fingerprint; the file is damaged or not the vendor's"
}

# work_folder NAME: a folder for downloads that survives a kill and is cleaned by the last step.
work_folder() {
  local folder=/var/cache/gpuinfra/$1
  mkdir -p "$folder"
  printf '%s\n' "$folder"
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
