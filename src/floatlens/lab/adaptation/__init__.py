"""Adaptation: turn a causal language model into a diffusion model, or train it on the same targets as one, by a small adapter.

`recipe.py` reads what to do; `data.py` prepares what is learned from, without what is evaluated on (`overlap.py`), and `sequences.py`
draws what each update sees; `objective.py` holds masks and losses; `adapter.py` holds the trained parameters, their files and merging;
`training.py` runs; `cards.py` describes.
"""
