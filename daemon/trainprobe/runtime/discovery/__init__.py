"""Which processes are trainings, who may have them watched, and what their runs are called."""
