"""A training of seconds: two stages, checkpoints inside it, states at updates 8, 16 and 24."""

from floatlens.lab.recipe import ModelShape, Optimizer, Recipe, Stage
from floatlens.lab.sequences import Shape

MICRO = Recipe(
    seed=3,
    model=ModelShape(layers=2, width=32, heads=2, rotary_base=10_000.0),
    optimizer=Optimizer(rate=3e-3, weight_decay=0.1, warm_up=4, cooling=0.5, final_rate=0.1),
    stages=(
        Stage("bind", 12, ("recall2",), ((Shape("open", passages=2, attributes=1, questions=2, cloze=True), 4),)),
        Stage("ask", 12, ("closed",), ((Shape("closed", questions=2), 4), (Shape("description", passages=2), 2))),
    ),
    check_every=8,
)
