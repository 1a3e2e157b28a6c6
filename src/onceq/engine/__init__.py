"""The only place with SQL and psycopg: drivers, bindings, migrations, the embedded server."""
