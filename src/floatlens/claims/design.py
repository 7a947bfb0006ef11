"""What is asked, and in which contexts: the constants that experiments, claims and figures share. Nothing here needs torch."""

DESCRIBED_FROM = 3
"""Passages that a description is written from, with gold at each slot in turn."""
DESCRIPTION_TOKENS = 32
"""What a description and its end take, and what the twins were trained to fill."""
ANSWER_TOKENS = 3
"""A value, a full stop, the end."""
TWO_HOP_TOKENS = 7
"""Whom it is about and what, as in "Felix Ellis lives in Cairo.", and the end."""

CLOSED_BOOK, GOLD = "closed-book", "gold"
NOISE = ("noise:0", "noise:0.2", "noise:0.4", "noise:0.6", "noise:0.8")
POSITIONS = ("position:1/6", "position:3/6", "position:6/6")
LAYOUTS = ("layout:one,passages=4", "layout:adjacent,passages=4", "layout:far,passages=4")

MASKED_CONTEXT = "position:2/3"
"""Shorter than the other contexts, because looking for the strongest keys takes its time."""
ANSWERED_WITHOUT, DESCRIBED_WITHOUT = (1, 5, 10), (1,)
"""How many of the strongest keys are masked. Writing takes as many steps as there are tokens, reading a likelihood takes one."""
MASKED_STEPS = 8
"""Denoising steps of a description under masking; all but the first are masked."""

TOP_HEADS, MOST_OF_A_LAYER = 3, 2
"""How many retrieval heads are silenced, and how many of them in one layer: others must be left as a control."""

EXPERIMENTS = ("trace", "masked descriptions", "masked answers", "noise", "layout", "position", "known people")
"""What is done with every twin, the longest first."""
