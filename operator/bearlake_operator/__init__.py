"""The control plane: reconciles Stream and Compactor resources into servers and compaction workers."""
