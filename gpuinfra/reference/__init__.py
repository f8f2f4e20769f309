"""Reference documentation generated from the code: `gpuinfra explain` and the JSON schema of a declaration."""
