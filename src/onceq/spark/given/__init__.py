"""What Spark's processes are told: where the repository is, and what a life may change."""
