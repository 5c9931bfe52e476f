"""A study from beginning to end: check, rounds, trainings."""
