#!/usr/bin/env bash
# Brings the CUDA toolkit, or proves the one that the image brought.
#
# Reads:  CUDA_VERSION  major and minor: 13.0
#         CUDA_PACKAGE  cuda-toolkit-13-0
#         CUDA_KEYRING_URL, _SHA256  package that brings NVIDIA's repository and its key
# Proves: /usr/local/cuda-<version>/bin/nvcc answers with that version.
# Never installs cuda-compat: on a host with a matching driver it only brings CUDA error 804.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query
  need_variables CUDA_VERSION CUDA_PACKAGE
  local home=/usr/local/cuda-$CUDA_VERSION

  if ! cut_off && [[ $(toolkit_release "$home") == "$CUDA_VERSION" ]]; then
    unchanged "CUDA $CUDA_VERSION is in $home"
  else
    use_nvidia_repository
    install_packages "$CUDA_PACKAGE"
  fi
  put_file /etc/profile.d/gpuinfra-cuda.sh "export CUDA_HOME=$home PATH=\"$home/bin:\$PATH\"" || true

  end_dry_run
  [[ $(toolkit_release "$home") == "$CUDA_VERSION" ]] ||
    die "$home/bin/nvcc does not answer with release $CUDA_VERSION"
  record cuda "$(toolkit_version "$home")"
  proved "CUDA $(toolkit_version "$home") compiles from $home"
}

toolkit_release() { "$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p'; }
toolkit_version() { "$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*, V\([0-9.]*\).*/\1/p'; }

main "$@"
