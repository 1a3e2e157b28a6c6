"""What a repository consists of, and how it is made, verified and upgraded."""
