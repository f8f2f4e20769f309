"""What nodes and operators reach over HTTP, all on one loopback port.

| path | service | who |
| --- | --- | --- |
| `/.imds/<instance>/latest/...` | instance metadata, version 2 | a node (AWS_EC2_METADATA_SERVICE_ENDPOINT) |
| POST `/` with `Action=` | STS, EC2, Auto Scaling | nodes, operators (AWS_ENDPOINT_URL) |
| `/<bucket>/<key>` | object storage, path style | nodes, operators (AWS_ENDPOINT_URL) |
| `/.control/...` | what a rehearsal asks of its cloud | who holds the token |
"""
