"""Studies made with nccl_tf: a plan, records and one page each, outside of the package."""
