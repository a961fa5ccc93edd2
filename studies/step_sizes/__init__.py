"""Step sizes after NCCL."""
