"""How text is written: prompts in tokens, the plan that a model follows, and the loops that denoise or go from left to right.

A loop asks for forward passes and reports what it did with them; it never runs a model itself.
"""
