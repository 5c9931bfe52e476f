"""Parent and worker: what they say to each other, and how a worker's process lives and ends."""
