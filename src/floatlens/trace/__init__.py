"""The trace: the canvas and the attention of a run along its steps, with named axes, in memory or on disk as Zarr."""
