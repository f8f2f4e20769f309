"""Starts gpuinfra's provider plugin.

The engine starts this file with the Python that it finds. If gpuinfra is not installed there, the plugin switches to the
environment of the checkout or of the installation.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def _other_pythons():
    """Return interpreters that probably have gpuinfra: of the checkout, the installation and the active environment."""
    roots = [HERE.parent / ".venv", *HERE.parents[2:7]]
    if "VIRTUAL_ENV" in os.environ:
        roots.append(Path(os.environ["VIRTUAL_ENV"]))
    return [root / "bin" / "python" for root in roots if (root / "bin" / "python").exists()]


def main():
    """Serve, or restart with a Python that has gpuinfra."""
    try:
        from gpuinfra.provider.service import serve
    except ImportError as missing:
        if (HERE.parent / "gpuinfra").is_dir() and str(HERE.parent) not in sys.path:
            sys.path.append(str(HERE.parent))
            return main()
        for python in _other_pythons():
            if os.environ.get("GPUINFRA_PLUGIN_PYTHON") != "chosen" and str(python) != sys.executable:
                os.environ["GPUINFRA_PLUGIN_PYTHON"] = "chosen"
                os.execv(python, [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])
        sys.stderr.write(
            f"gpuinfra's plugin runs with {sys.executable}, which lacks {missing.name}; "
            "install gpuinfra with its cloud's extra there, or set runtime.options.virtualenv in plugin/PulumiPlugin.yaml "
            "to an environment that has it\n"
        )
        return 3
    return serve([a for a in sys.argv[1:] if not a.startswith("-")])


sys.exit(main())
