"""Ask models and keep going: every question under every condition, rows kept as they are done, outcomes with intervals."""
