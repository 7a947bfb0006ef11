"""What people look at: traces and findings in the terminal, and figures for a paper."""
