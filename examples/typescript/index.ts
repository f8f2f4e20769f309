import { GpuCluster } from "@gpuinfra/gpuinfra";

// The declaration is `gpuinfra:cluster` in the stack file, so all commands of gpuinfra can read it.
const train = new GpuCluster("train");

export const summary = train.summary;
export const nodes = train.nodes;
export const evidenceBucket = train.evidence_bucket;
