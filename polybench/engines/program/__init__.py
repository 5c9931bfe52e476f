"""Programs of users: a Python file with `setup`, `load` and `train_step` is a row like an engine."""
