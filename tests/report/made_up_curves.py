"""A table as `floatlens curves` writes it, with numbers that can be worked out by hand."""

import polars as pl

UPDATES = (0, 1, 4)
TEXTS = 4
LAYERS = (0, 1, 2)
MEASURES = ("on the first token", "on the strongest key")


def value_of(run: str, seed: int, update: int, text: int, layer: int, measure: str) -> float:
    """Differs along every axis, and lies between 0 and 100."""
    return 20 * (measure == MEASURES[0]) + 10 * (run == "arm") + 3 * seed + update + 2 * text + 5 * layer


def made_up_curves(runs: dict[str, tuple[str, str, int]] | None = None, updates: dict[str, tuple[int, ...]] | None = None) -> pl.DataFrame:
    """Runs by name: objective, mask, seed. By default an autoregressive run, and two of a diffusion model that differ in their seed."""
    chosen = runs or {
        "arm": ("ar", "causal", 0),
        "mdm-0": ("diffusion", "bidirectional", 0),
        "mdm-1": ("diffusion", "bidirectional", 1),
    }
    return pl.DataFrame(
        [
            {
                "run": run,
                "objective": objective,
                "mask": mask,
                "seed": seed,
                "update": update,
                "kind": "text",
                "text": text,
                "group": group,
                "layer": layer,
                "measure": measure,
                "value": value_of(run, seed, update, text, layer, measure) + (group == "masked"),
                "null": 1.5 + layer,
                "key": 0,
                "token": "the",
            }
            for run, (objective, mask, seed) in chosen.items()
            for update in (updates or {}).get(run, UPDATES)
            for text in range(TEXTS)
            for measure in MEASURES
            for layer in LAYERS
            for group in (("unmasked", "masked") if objective == "diffusion" else ("unmasked",))
        ]
    )
