"""Schedule traces, workloads and devices as numbers that a cost model can read."""
