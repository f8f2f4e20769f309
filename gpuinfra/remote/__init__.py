"""Access to nodes over SSH, for machines without user data and for repairs.

| module | responsibility |
| --- | --- |
| `hosts.py` | the hosts file: the hosts and how to reach them |
| `tunnels.py`, `bastion.py` | the nodes of a deployed stack, with the login and the tunnel of their cloud |
| `known.py` | host key verification with known_hosts files, host CAs and keys from the handover; keys are never added automatically |
| `connect.py` | the route to a host: direct, through jump hosts, or through a proxy command |
| `connection.py` | one SSH connection: handshake, host key, login and commands, each with a time limit |
| `keys.py`, `proxy.py` | private keys and the SSH agent; proxy commands such as the tunnel of a cloud |
| `fleet.py` | short tasks on many hosts in parallel |
| `agent.py` | the program that runs on the host; it uses only the standard library, is sent over standard input and is never installed |
| `verify.py` | collects new evidence from a host |
| `pair.py` | runs one half of an all-reduce between two hosts |
| `deliver.py` | installs a bundle on a host, starts it and follows its journal |
| `record.py` | the record of a bootstrap run on the operator's machine, which lets a second run continue it |
| `problem.py` | the errors that concern one host |

The plan determines what is installed. docs/guides/remote.md describes the commands.
"""
