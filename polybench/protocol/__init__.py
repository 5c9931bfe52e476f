"""Messages between polybench and its worker processes, and the life of such a process."""
