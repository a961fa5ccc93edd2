"""A comparison of systems under one protocol: its plan, and the runs that it asks for."""
