"""What is there before a session: Java, a directory of its own, and how a process hangs up."""
