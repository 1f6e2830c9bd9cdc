"""The verbs of jobs: put, take, finish, move, and what they lead to. Above `state` and `logs`."""
