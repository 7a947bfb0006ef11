"""Models that are not Hugging Face checkpoint folders, turned into one once, in the user's cache; everything afterwards is ordinary."""
