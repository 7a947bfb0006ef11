"""See and change the attention calls of a torch model: the mode, the block walk, the reducers, the edits. Torch only."""
