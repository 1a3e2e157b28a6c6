"""Whether the guarantees were kept: what all recorded, judged for each request, and the page."""
