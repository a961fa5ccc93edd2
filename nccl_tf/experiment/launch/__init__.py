"""Many runs: a pool of processes, a Ray cluster, a sweep."""
