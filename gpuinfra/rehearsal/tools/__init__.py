"""Stand-in commands: replace commands that a node's steps call and that need hardware or a vendor's server.

A node makes hundreds of calls, so every module here uses only the standard library and runs isolated and without
`site`. The output is computed from the node's state (`state.py`), so it reveals steps that did not run. The content of
packages is data (`universe.json`). Device tools are in `gpuinfra.rehearsal.devices`. Imports are relative, so that the
modules work as `standin.tools` in a node and as `gpuinfra.rehearsal.tools` in a test.
"""
