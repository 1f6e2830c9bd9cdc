"""The verbs of jobs: put, take, finish, move, and their effects. Above `state` and `logs`."""
