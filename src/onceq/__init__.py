"""onceq: exactly-once request processing on recoverable queues, on PostgreSQL.

This module is the public Python API; what is not named here is private.
"""

__version__ = "0.0.1"
