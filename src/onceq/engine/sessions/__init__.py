"""One session with PostgreSQL: its settings, its statements, what its errors and its end mean."""
