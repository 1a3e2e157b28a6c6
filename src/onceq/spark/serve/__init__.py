"""The request server: one transaction for each micro-batch, and what becomes of failures."""
