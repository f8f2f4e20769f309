"""Rehearsals: run stacks with the real Pulumi engine, a stand-in cloud and stand-in nodes.

`commands` is what the commands of gpuinfra find and call. `run` is the entry point of a rehearsal: it prepares the folder, the environment
and the stand-in cloud, runs the Pulumi CLI, and writes the report.
`cloud/` is the stand-in cloud, `nodes/` and `tools/` are the stand-in nodes, `devices/` are their device tools.
Components, bootstrap steps and checks cannot detect a rehearsal. Only the endpoints differ.
"""
