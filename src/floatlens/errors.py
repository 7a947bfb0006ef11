"""The two ways floatlens says no, and the one in which it says: mind this.

A `Refusal` is about what the user asked for: one sentence that says what is wrong and one that says what to do.
A `BrokenPromise` is about floatlens itself: a check that must always hold did not, so the numbers are not handed out.
A `Caution` is a warning: the numbers are right and easily misread.
"""


class Refusal(ValueError):
    """What was asked for would give a plausible but wrong number, or cannot be done. The message says what to do instead."""


class BrokenPromise(RuntimeError):
    """An internal check failed: the observed weights are not those of the model. Please report it."""


class Caution(UserWarning):
    """A result that is right and easily misread: the prompt was not what the model read, an intervention did nothing. On the command line it is a sentence."""
