"""Language models: where they come from, which family they belong to, and how they are loaded and run."""
