"""What a recipe trains on, as one hash: so that weights can say which data they saw, and a changed world or a changed drawing of sequences is noticed.

Decided here: the hash covers all that the world can say and the sequences of every stage's first update, token ids and answers. They are written as numbers in text, so
it is the same in every process and on every platform.
"""

import json
from hashlib import sha256

from floatlens.tasks.world.fingerprint import world_hash
from floatlens.tasks.world.people import make_world
from floatlens.training.recipe import Recipe
from floatlens.training.updates import draw_batches


def data_hash(recipe: Recipe) -> str:
    """The sha256 of a recipe's data, in hexadecimal; the same for all twins.

    Examples
    --------
    >>> from floatlens.training.recipe_files import bundled_recipe
    >>> len(data_hash(bundled_recipe("smoke")))
    64
    """
    world, first, sequences = make_world(), 1, []
    for stage in recipe.stages:
        batches = draw_batches(recipe, world, first)
        sequences.append([[batch.tokens.tolist(), batch.answers.int().tolist()] for batch in batches])
        first += stage.updates
    return sha256(json.dumps([world_hash(world), sequences]).encode("ascii")).hexdigest()
