"""How the twins are trained: one recipe, one start, one stream of data; only the mask and the objective differ."""
