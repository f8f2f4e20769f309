#!/usr/bin/env bash
# Installs the CUDA toolkit, or verifies the one in the image.
#
# Reads:  CUDA_VERSION  major and minor: 13.0
#         CUDA_PACKAGE  cuda-toolkit-13-0
#         CUDA_KEYRING_URL, _SHA256  package with NVIDIA's repository and its key
# Proves: /usr/local/cuda-<version>/bin/nvcc reports that version.
# Never installs cuda-compat: with a matching driver it only causes CUDA error 804.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query
  need_variables CUDA_VERSION CUDA_PACKAGE
  local home=/usr/local/cuda-$CUDA_VERSION

  if ! interrupted && [[ $(toolkit_release "$home") == "$CUDA_VERSION" ]]; then
    unchanged "CUDA $CUDA_VERSION is installed in $home"
  else
    use_nvidia_repository
    install_packages "$CUDA_PACKAGE"
  fi
  put_file /etc/profile.d/gpuinfra-cuda.sh "export CUDA_HOME=$home PATH=\"$home/bin:\$PATH\"" || true

  end_dry_run
  [[ $(toolkit_release "$home") == "$CUDA_VERSION" ]] ||
    die "$home/bin/nvcc does not report release $CUDA_VERSION"
  record cuda "$(toolkit_version "$home")"
  proved "CUDA $(toolkit_version "$home") is installed in $home"
}

toolkit_release() { "$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p'; }
toolkit_version() { "$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*, V\([0-9.]*\).*/\1/p'; }

main "$@"
