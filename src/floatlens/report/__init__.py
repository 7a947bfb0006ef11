"""What people look at: a trace in the terminal."""
