"""The worker process: one engine, the timing loop, and the passes that count allocations."""
