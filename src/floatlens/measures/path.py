"""The path of the strongest key: which key draws most at each step, and whether it is another one at the next.

It exists wherever there is received attention at two steps: for both kinds of model, also where a step has one row and nothing can be
said of the movement of anchors. Heads are averaged unless asked otherwise. `pooled` averages layers too, all of them and those of each
third of the depth. Three numbers describe a path: how many different `keys` it visits, the share of neighbouring steps between which it
`changes`, and the `share` of steps that it spends on its favourite key.

A step at which several keys draw the same (to 1e-5 of what they draw) has no strongest key. It is left out, and so are the changes into
and out of it: which of the keys came first would be rounding.

**Noise.** A path also changes because it is seen through few rows, or few heads. Within a step nothing has moved, so two halves of a step
that name different keys show noise alone: `noise` is how often they do. The halves are the rows at even and at odd positions (`method`
"rows") or, for a group that never has more than one row, the heads with even and with odd numbers ("heads"). Half of the rows see less
than all of them, so `noise` is not to be set against `changes` but against `compared`: one half of a step and the other half of the next.
`movement` is `compared - noise`: 0 where nothing moves, 1 where the halves agree and the key is another one at every step. Each step
counts as often within as across. What noise alone would do to the other two numbers follows from it: at most
`1 + (steps - 1) noise` different keys (`keys_null`), because a key cannot be new without being another one than the one before, and at
least `1 - noise` of the steps on the favourite (`share_null`), because two looks agree at most as often as one of them hits the favourite.

Halves of heads show the noise of heads, not that of rows. Where a step has one row, and another one at each step, a path above its noise
says that the heads turn together from key to key, which they also do because the row is another one. "It floats" therefore needs more
(`floats`): movement above noise in rows that stay, those of the prompt, and in rows that move as an autoregressive model's do, from left
to right.

NaN with a reason: one step, no strongest key, no halves. Refused: data without steps; a verdict from a trace without prompt rows, or from
one that was not written from left to right.
"""

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.agreement import sole_favourite
from floatlens.measures.drift import NOT_MEASURED, ONE_STEP
from floatlens.measures.inputs import (
    HALVES,
    RECEIVED,
    Measurable,
    as_dataset,
    by_layers,
    depths,
    one_sample_at_a_time,
    prompts_of,
    refuse_missing,
)
from floatlens.measures.received_attention import halves_of, mean_over_heads, measured
from floatlens.statistics.resampling import bootstrap
from floatlens.trace.schema import PROMPT
from floatlens.trace.trace import Trace

KEYS = ("all", "prompt")
NUMBERS = ("keys", "keys_null", "changes", "noise", "share", "share_null", "compared", "movement")
NO_KEY = "several keys draw the same at every step"
NO_PAIR = "no two neighbouring steps both have a strongest key"
PATH = "The path of the strongest key"
NO_HALVES = "nothing recorded that tells noise from movement: record halves"
HALVES_PER_LAYER = "halves were recorded per layer: use per_head=False"
NO_HEADS = "one row per step, and heads cannot be set against each other: record mass per head"
ONE_HEAD = "one row per step of one head, so noise and movement cannot be told apart"
NO_HALF_PAIR = "no two neighbouring steps both have a strongest key in each half"


@one_sample_at_a_time
def strongest_path(data: xr.Dataset, *, keys: str = "all", pooled: bool = False, per_head: bool = False) -> xr.Dataset:
    """The strongest key of each step, how often it changes, and how often noise alone would change it.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible, null and rows; with the same of the rows at even positions (detail "halves") noise can
        be told from movement in groups of several rows.
    keys
        Among which keys: "all", or those of the "prompt", which exist at every step (needs `state`).
    pooled
        Average layers: the result has an axis `depth` (all, shallow, middle, deep) in place of `layer`.
    per_head
        One path for each head; a single row of a head has no noise to be compared with.

    Returns
    -------
    xarray.Dataset
        By layer (or depth), head and group: `keys`, `keys_null`, `changes`, `noise`, `share`, `share_null`, `compared`, `movement`;
        `favourite`, the key with most steps (of several, the first in the text; -1 for none); `steps` with a strongest key and `pairs` of
        neighbouring ones; `reason`, why there is no path; `noise_reason`, why there is no noise. By step as well: `path`, -1 where there
        is no strongest key. By group: `method`. See the top of this module.

    Examples
    --------
    Four rows look at key 2 at step 0 and at key 5 from step 1 on: one of two pairs of steps differs, and all halves agree.

    >>> from floatlens.measures import from_attention
    >>> looks = np.full((3, 1, 1, 4, 10), 0.04)
    >>> looks[0, ..., 2] = looks[1:, ..., 5] = 0.64
    >>> found = strongest_path(from_attention(looks))
    >>> found["path"].values.ravel().tolist(), found["keys"].item(), found["changes"].item(), round(found["share"].item(), 3)
    ([2, 5, 5], 2.0, 0.5, 0.667)
    >>> found["noise"].item(), found["movement"].item(), found["keys_null"].item()
    (0.0, 0.5, 1.0)
    """
    if keys not in KEYS:
        raise Refusal(f"keys={keys!r} is not known; choose one of {', '.join(KEYS)}.")
    return path_of(looks_of(data, pooled=pooled, per_head=per_head), data, keys)


def looks_of(data: xr.Dataset, *, pooled: bool = False, per_head: bool = False) -> xr.Dataset:
    """What the paths of one sample are read from, whichever keys they are among: received attention of everyone and of two halves."""
    kept = [*RECEIVED, *(HALVES if "mass_even" in data else ())]
    refuse_missing(data, kept, PATH)
    for axis in ("step", *(("layer",) if pooled else ())):
        if axis not in data["mass"].dims:
            raise Refusal(
                f"These data have no axis {axis!r}, and the path of the strongest key needs it; pass the trace, with every {axis}."
            )
    grouped = data[kept] if "group" in data.dims else data[kept].expand_dims("group")
    single = (grouped["rows"] <= 1) | grouped["rows"].isnull()
    single = single.all([axis for axis in single.dims if axis != "group"])
    looks = by_layers(lambda some: _looks(some, single, per_head), grouped)
    method = xr.where(single, "heads", "rows" if "mass_even" in data else "").where(looks["no_halves"] == "", "")
    return (_pooled(looks) if pooled else looks).assign(method=method, no_halves=looks["no_halves"])


def path_of(looks: xr.Dataset, data: xr.Dataset, keys: str) -> xr.Dataset:
    """The path among some keys of a sample, from what `looks_of` gave."""
    if keys == "prompt":
        refuse_missing(data, ("state",), PATH)
    path = _paths(looks, _of_prompt(data) if keys == "prompt" else None)
    path["method"] = looks["method"]
    path["noise_reason"] = xr.where(looks["no_halves"] == "", path["noise_reason"], looks["no_halves"])
    path["noise_reason"] = xr.where(path["reason"] == "", path["noise_reason"], path["reason"])
    path = path.transpose("step", *(axis for axis in ("layer", "depth", "head", "group") if axis in path.dims))
    return path if "group" in data.dims else path.squeeze("group", drop=True)


def _of_prompt(data: xr.Dataset) -> xr.DataArray:
    return (data["state"] == PROMPT).any("step").rename(position="key")


def _looks(data: xr.Dataset, single: xr.DataArray, per_head: bool) -> xr.Dataset:
    """Received attention of everyone (`mass`, `visible`, `rows`) and of the two halves of each group; `no_halves` says why there are none.

    Halves are those of the heads for groups with a single row, otherwise those of the rows.
    """
    per_head = per_head and "head" in data["mass"].dims
    everyone = data if per_head else mean_over_heads(data)
    by_rows, without_rows = None, NO_HALVES
    if "mass_even" in data:
        fits = not per_head or "head" in data["mass_even"].dims
        by_rows, without_rows = (halves_of(everyone), "") if fits else (None, HALVES_PER_LAYER)
    by_heads, without_heads = None, ONE_HEAD
    if "head" not in data["mass"].dims:
        without_heads = NO_HEADS
    elif not per_head and data.sizes["head"] > 1:
        by_heads = tuple(mean_over_heads(data[list(RECEIVED)].isel(head=slice(first, None, 2))) for first in (0, 1))
        without_heads = ""
    looks = {name: everyone[name] for name in ("mass", "visible", "rows")}
    for number, half in enumerate(("first", "second")):
        for name in ("mass", "visible"):
            nothing = xr.full_like(everyone[name], np.nan)
            of_rows, of_heads = (nothing if halves is None else halves[number][name] for halves in (by_rows, by_heads))
            looks[f"{name}_{half}"] = xr.where(single, of_heads, of_rows).transpose(*everyone[name].dims)
    return xr.Dataset(looks).assign(no_halves=xr.where(single, without_heads, without_rows))


def _pooled(looks: xr.Dataset) -> xr.Dataset:
    """The mean over all layers, and over those of each third of the depth: an axis `depth` in place of `layer`."""
    thirds = depths(looks["layer"].values) if "layer" in looks.coords else depths(np.arange(looks.sizes["layer"]))
    looks = looks.drop_vars(["layer", "no_halves"], errors="ignore")
    return xr.concat([looks.isel(layer=np.flatnonzero(inside)).mean("layer") for inside in thirds.values], thirds["depth"])


def _paths(looks: xr.Dataset, among: xr.DataArray | None) -> xr.Dataset:
    """The path of everyone and its numbers, and how often the paths of the two halves differ, within a step and across two."""
    candidates = measured(looks) if among is None else measured(looks) & among
    path, known = sole_favourite(looks["mass"], looks["visible"], candidates)
    in_both = candidates & (looks["visible_first"] > 0) & (looks["visible_second"] > 0)
    halves = [sole_favourite(looks[f"mass_{half}"], looks[f"visible_{half}"], in_both)[0] for half in ("first", "second")]
    path = path.transpose("step", ...)
    axes = path.dims[1:]
    everyone, first, second, drawn = (values.transpose(*path.dims).values for values in (path, *halves, known))
    numbers = _numbers(everyone, looks.sizes["key"]) | _noise(first, second)
    steps, pairs, noise = numbers["steps"], numbers["pairs"], numbers["noise"]
    numbers |= {
        "keys_null": 1 + (steps - 1) * noise,
        "share_null": 1 - noise,
        "noise_reason": np.where(np.isnan(noise), NO_HALF_PAIR, ""),
        "reason": np.select([steps > 1, steps == 1, drawn.any(0)], [np.where(pairs > 0, "", NO_PAIR), ONE_STEP, NO_KEY], NOT_MEASURED),
    }
    numbers |= {name: np.where(steps > 1, numbers[name], np.nan) for name in NUMBERS}
    labels = {name: part for name, part in path.coords.items() if "step" not in part.dims}
    return xr.Dataset({name: (axes, values) for name, values in numbers.items()}, coords=labels).assign(path=path)


def _numbers(path: np.ndarray, keys: int) -> dict[str, np.ndarray]:
    """What a path (step, ...) over so many keys is described by; -1 is no key."""
    flat = path.reshape(len(path), -1)
    visits = np.zeros((flat.shape[1], keys), int)
    step, place = np.nonzero(flat >= 0)
    np.add.at(visits, (place, flat[step, place]), 1)
    visits = visits.reshape(*path.shape[1:], keys)
    steps = visits.sum(-1)
    both_known = (path[:-1] >= 0) & (path[1:] >= 0)
    return {
        "keys": (visits > 0).sum(-1),
        "changes": _share(_count(path[:-1] != path[1:], both_known), both_known.sum(0)),
        "share": visits.max(-1) / np.maximum(steps, 1),
        "favourite": np.where(steps > 0, visits.argmax(-1), -1),
        "steps": steps,
        "pairs": both_known.sum(0),
    }


def _noise(first: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
    """How often two halves (step, ...) differ within a step and across two, over neighbouring steps at which both have a strongest key."""
    known = (first >= 0) & (second >= 0)
    usable = known[:-1] & known[1:]
    apart = first != second
    within = _count(apart[:-1], usable) + _count(apart[1:], usable)
    across = _count(first[:-1] != second[1:], usable) + _count(second[:-1] != first[1:], usable)
    looks = 2 * usable.sum(0)
    # the difference of whole numbers, for that of two shares is not 0 where they are equal
    return {"noise": _share(within, looks), "compared": _share(across, looks), "movement": _share(across - within, looks)}


def _count(happens: np.ndarray, counted: np.ndarray) -> np.ndarray:
    return (happens & counted).sum(0)


def _share(number: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """NaN where there is nothing to divide by."""
    return np.divide(number, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


DEPTHS = ("all", "shallow", "middle", "deep")
CONDITIONS = ("prompt rows", "left to right")


def floats(
    prompt_rows: Measurable,
    left_to_right: Measurable,
    *,
    keys: str = "all",
    depth: str = "all",
    level: float = 0.95,
    seed: int = 0,
) -> xr.Dataset:
    """Whether the strongest key floats: it moves more than noise explains in rows that stay, and in rows that go from left to right.

    In confidence order the rows that predict jump about the text, and the key they favour may jump with them. The rows of the prompt are
    the same at every step; decoded from left to right, the predicting row moves by one position, as an autoregressive model's does.

    Parameters
    ----------
    prompt_rows
        A trace of a diffusion model, in any order, with the query group "prompt" (`groups=["predicting", "prompt"]`).
    left_to_right
        A trace of the same model decoded from left to right (`block_length=1`).
    keys
        Among which keys, as in `strongest_path`: "all" or "prompt".
    depth
        Which layers are averaged: "all", "shallow", "middle" or "deep".
    level, seed
        Of the interval over prompts.

    Returns
    -------
    xarray.Dataset
        Over `condition` ("prompt rows", "left to right"): `estimate`, `low` and `high` of `movement`, `prompts`, `above_noise` (the whole
        interval lies above 0), and `reason`, why there is no number or no interval. `floats` is a single yes or no: both are above noise.

    Examples
    --------
    Two prompts; all rows look at another key at every step.

    >>> from floatlens.measures import from_attention
    >>> looks = np.repeat(np.eye(6)[:, None, None, None], 4, axis=3).repeat(2, axis=2) * 0.7 + 0.05  # (step, layer, head, query, key)
    >>> groups = {"prompt": np.ones(4, bool), "predicting": np.eye(6, 4, dtype=bool)}
    >>> data = from_attention(looks, groups=groups).assign(committed=("position", np.arange(6)))
    >>> verdict = floats(*[xr.concat([data, data], "sample")] * 2)
    >>> verdict["estimate"].values.round(6).tolist(), verdict["floats"].item()
    ([1.0, 1.0], True)
    """
    if depth not in DEPTHS:
        raise Refusal(f"depth={depth!r} is not known; choose one of {', '.join(DEPTHS)}.")
    _refuse_other_orders(as_dataset(left_to_right))
    conditions: list[xr.Dataset] = []
    for given, group in ((prompt_rows, "prompt"), (left_to_right, "predicting")):
        data = as_dataset(given)
        data = data if "sample" in data.dims else data.expand_dims("sample")
        if "group" not in data.dims or group not in data["group"].values:
            raise Refusal(f"The trace has no {group} rows; record them with groups=['predicting', 'prompt'] (--groups predicting,prompt).")
        path = strongest_path(data.sel(group=[group]), keys=keys, pooled=True).sel(depth=depth).squeeze("group", drop=True)
        clusters = prompts_of(given) if isinstance(given, Trace) else None
        interval = bootstrap(path["movement"], clusters=clusters, level=level, seed=seed)
        if bool(interval["estimate"].isnull()):
            reasons = [text for text in path["noise_reason"].values.tolist() if text]
            interval["reason"] = reasons[0] if reasons else interval["reason"]
        conditions.append(interval.drop_vars("depth"))
    verdict = xr.concat(conditions, xr.DataArray(list(CONDITIONS), dims="condition", name="condition"))
    verdict["above_noise"] = verdict["low"] > 0
    return verdict.assign(floats=verdict["above_noise"].all())


def _refuse_other_orders(data: xr.Dataset) -> None:
    """Refuse a trace in which a position was filled before one to its left."""
    refuse_missing(data, ["committed"], "Whether the strongest key floats")
    committed = data["committed"].transpose(..., "position").values
    for steps in committed.reshape(-1, committed.shape[-1]):
        if (np.diff(steps[steps >= 0]) < 0).any():
            raise Refusal(
                "The second trace was not written from left to right, so its predicting rows jump; trace the model with block_length=1 "
                "(-s block_length=1)."
            )
