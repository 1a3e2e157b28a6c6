"""Pages for people: tables and figures in one file that fetches nothing and runs nothing."""
