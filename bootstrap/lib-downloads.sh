# shellcheck shell=bash
# Downloads by checksum, keys by fingerprint, signatures. Sourced by lib.sh.

# mirrored URL: prints the URL below MIRROR_URL (https://vendor/path becomes MIRROR_URL/vendor/path), for networks without internet access.
mirrored() {
  if [[ -n ${MIRROR_URL:-} && $1 == http*://* ]]; then
    printf '%s/%s\n' "${MIRROR_URL%/}" "${1#*://}"
  else
    printf '%s\n' "$1"
  fi
}

_download() {
  curl -fsS --proto '=http,https' --location --connect-timeout 20 --max-time 900 --speed-limit 1024 --speed-time 60 \
    -o "$2" "$1"
}

# download URL DEST: downloads without a checksum. Only for files that are verified by signature or fingerprint afterwards.
download() {
  local url part
  url=$(mirrored "$1")
  part=$2.part
  retry 4 "downloading $url" _download "$url" "$part"
  mv -f -- "$part" "$2"
}

# fetch URL SHA256 DEST: downloads the file and verifies its checksum.
fetch() {
  local url=$1 sha256=$2 dest=$3 found
  if [[ -f $dest ]] && [[ $(file_sha256 "$dest") == "$sha256" ]]; then
    return 0
  fi
  download "$url" "$dest.new"
  found=$(file_sha256 "$dest.new")
  if [[ $found != "$sha256" ]]; then
    rm -f -- "$dest.new"
    die "$(mirrored "$url") has the SHA-256 $found, but the lock requires $sha256; the file is damaged or was replaced"
  fi
  mv -f -- "$dest.new" "$dest"
}

file_sha256() { sha256sum -- "$1" | cut -d ' ' -f 1; }

# key_fingerprints FILE: prints the fingerprints of the primary keys in the file.
key_fingerprints() {
  gpg --batch --show-keys --with-colons "$1" 2>/dev/null |
    awk -F: '$1 == "pub" { primary = 1 } $1 == "sub" { primary = 0 } $1 == "fpr" && primary { print $10; primary = 0 }'
}

# fetch_key URL FINGERPRINT DEST: writes a keyring that contains only that key.
fetch_key() {
  local url=$1 fingerprint=$2 dest=$3 work found
  work=$(work_folder key)
  download "$url" "$work/key"
  found=$(key_fingerprints "$work/key")
  if [[ $found != "$fingerprint" ]]; then
    refuse "the key at $url has the fingerprint ${found:-none}, but the lock requires $fingerprint; verify the key with the vendor"
  fi
  rm -f -- "$work/key.gpg"
  gpg --batch --dearmor -o "$work/key.gpg" "$work/key"
  mkdir -p "${dest%/*}"
  install -m 0644 "$work/key.gpg" "$dest.new"
  mv -f -- "$dest.new" "$dest"
  changed "added the key $fingerprint to $dest"
}

# verify_signature FILE SIGNATURE KEY_FILE FINGERPRINT: verifies that the key (or its subkey) signed FILE, and is neither revoked nor expired. KEY_FILE
# may contain other keys. gpg also reports VALIDSIG for a correct signature of a revoked or expired key, after REVKEYSIG or EXPKEYSIG instead of
# GOODSIG (doc/DETAILS of GnuPG, "Format of the --status-fd output").
verify_signature() {
  local file=$1 signature=$2 key=$3 fingerprint=$4 home status
  grep -qxF -- "$fingerprint" <<<"$(key_fingerprints "$key")" ||
    refuse "no key in $key has the lock's fingerprint $fingerprint"
  home=$(mktemp -d)
  chmod 700 "$home"
  gpg --batch --homedir "$home" --import "$key" 2>/dev/null
  status=$(gpg --batch --homedir "$home" --status-fd 1 --verify "$signature" "$file" 2>/dev/null || true)
  gpgconf --homedir "$home" --kill all 2>/dev/null || true
  rm -rf -- "$home"
  if awk -v key="$fingerprint" '$2 == "NEWSIG" { good = 0 } $2 == "GOODSIG" { good = 1 } $2 == "VALIDSIG" && good && ($3 == key || $NF == key) { found = 1 }
    END { exit !found }' <<<"$status"; then
    return
  fi
  ! grep -qE '^\[GNUPG:\] (REVKEYSIG|EXPKEYSIG|EXPSIG) ' <<<"$status" ||
    refuse "the signature of ${file##*/} is by a key that is revoked or expired ($fingerprint); use a version of gpuinfra with the vendor's current key"
  die "the signature of ${file##*/} does not match the key $fingerprint; the file is damaged or was replaced"
}

# work_folder NAME: a folder for downloads that persists if the run is killed. The last step deletes it.
work_folder() {
  local folder=/var/cache/gpuinfra/$1
  mkdir -p "$folder"
  printf '%s\n' "$folder"
}
