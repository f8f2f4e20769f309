"""AWS's HTTP services.

| path | service | clients and the variable that configures the endpoint |
| --- | --- | --- |
| `/.imds/<instance>/latest/...` | instance metadata, version 2 | a node: AWS_EC2_METADATA_SERVICE_ENDPOINT |
| POST `/` with `Action=` | STS, EC2, Auto Scaling | nodes, the operator: AWS_ENDPOINT_URL |
| `/<bucket>/<key>` | object storage, path style | nodes, the operator: AWS_ENDPOINT_URL |
"""
