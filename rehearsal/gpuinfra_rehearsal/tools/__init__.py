"""Stand-in commands. They replace commands that a node's steps call and that require hardware or a vendor's server.

A node makes hundreds of calls, so every module here uses only the standard library and runs isolated and without
`site`. The output is computed from the node's state (`state.py`), so it reveals steps that did not run. Package content
is data (`universe.json`). Device tools are in `gpuinfra_rehearsal.devices`. Imports are relative, so the modules
work as `standin.tools` in a node and as `gpuinfra_rehearsal.tools` in a test.
"""
