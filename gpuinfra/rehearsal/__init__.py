"""Rehearsal: stand-in clouds and stand-in nodes under the real engine.

`run` is the way through: folder, private environment, stand-in cloud, Pulumi's own CLI, report.
`cloud/` is the stand-in cloud, `nodes/` and `tools/` the stand-in nodes, `devices/` what their hardware prints.
Components, steps and the node part do not know that they are rehearsed; all they see is endpoints.
"""
