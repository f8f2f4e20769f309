"""Recorded traffic of the real Pulumi providers, replayed against the stand-in clouds.

`recordings/<package>/*.json` holds condensed recordings: tables of facts about real deployments that other projects
published. `condense.py` makes them, `replay.py` replays them, `explained.yaml` lists the differences that remain, each
with a reason, and `python -m tests.providers` prints the table in `docs/internals/cloud-models.md`.

A condensed recording is one JSON object:

| key | value |
| --- | --- |
| `source` | repository and path of the recording |
| `commit` | commit of the repository, or of the file where only single files are stored |
| `license` | license of the repository |
| `provider` | package and version of the provider that answered, or `example` for published examples of the API |
| `region` | region or location of the deployment |
| `exchanges` | the calls in the recorded order |

An exchange:

| key | value |
| --- | --- |
| `call` | `Check`, `Diff`, `Create`, `Read` or `Invoke` |
| `type`, `name` | type token (for `Invoke` the function) and logical name |
| `times` | how many recorded calls of this shape the exchange stands for |
| `source` | of an example: its path and commit |
| `given` | request: `Check` inputs of the program; `Create` inputs; `Diff` `old` and `new` inputs; `Read` `id`, `inputs` and `state`; `Invoke` arguments |
| `answer` | response: `Check` `inputs` and `failures`; `Create` `id` and `properties`;
`Diff` `diffs`, `replaces`, `deleteBeforeReplace` and `stables`; `Read` `inputs` and `properties`; `Invoke` `return` |
| `error` | the provider's error, in place of `answer` |

`stables` is the provider's own list of the inputs whose change replaces the resource, as far as none of them changed.
Account numbers are replaced by 123456789012. Calls of equal shape (same call, type, and kinds of values) are kept once.

`answers/aws.json` holds recorded answers of AWS's own services, `replacements.yaml` holds facts from the
source of the AWS provider.

To add a recording of another provider, add its JSON file to `recordings/<package>/` and run `python -m tests.providers`.
A test fails for each difference that `explained.yaml` does not list.
"""
