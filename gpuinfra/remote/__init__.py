"""Access to nodes over SSH: for machines without user data, and for repairs.

| module | responsibility |
| --- | --- |
| `hosts.py` | the hosts file: hosts and how to reach them |
| `tunnels.py`, `bastion.py` | the nodes of a deployed stack, with the login and through the tunnel of their cloud |
| `known.py` | host key verification: known_hosts files, host CAs, keys from the handover; keys are never added automatically |
| `connect.py` | the route to a host: direct, through jump hosts, or through a proxy command |
| `connection.py` | one SSH connection: handshake, host key, login and commands, each with a time limit |
| `keys.py`, `proxy.py` | private keys and the SSH agent; proxy commands such as the tunnel of a cloud |
| `fleet.py` | short tasks on many hosts in parallel |
| `agent.py` | the program that runs on the host: standard library only, sent over standard input, never installed |
| `verify.py` | collects new evidence from a host |
| `pair.py` | runs one half of an all-reduce between two hosts |
| `deliver.py` | installs a bundle on a host, starts it and follows its journal |
| `record.py` | the record of a bootstrap run on the operator's machine, so that a second run continues it |
| `problem.py` | the errors of one host |

The plan decides what is installed. docs/remote.md describes the commands.
"""
