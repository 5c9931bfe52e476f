"""The child process: ONE engine, the only timed loop, the passes that count."""
