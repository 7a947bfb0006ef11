"""An autoregressive model's trace from one pass over its finished text, one sample at a time.

Row i of a causal model never changes once it is written, so one pass gives every step's new row, exactly: for an unedited model whose
rotary embedding does not depend on the length. Everything else is traced step by step. What a later row would see does not exist yet at a
step, and is NaN. Step 0 also computes the rows of the prompt: they are its query norms, its patterns, its flow, and the group "prompt".
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from floatlens.capture.records import StepArrays, assemble, fetch_steps
from floatlens.capture.reduction import SeenLayers
from floatlens.capture.tapping import Tap, TapRequest
from floatlens.capture.walk import Workspace
from floatlens.decoding.canvas import Canvas, Pass
from floatlens.decoding.model import Writer
from floatlens.trace.own_axes import Favourites, mean_over_heads, shifted
from floatlens.trace.recording import RowsRecorder, layers_differ
from floatlens.trace.schema import COUNTS, VARIABLES, Arrays, Detail


@dataclass(frozen=True, eq=False)
class _Seen:
    """What the pass showed: every step's row as a group of its own (`steps` is `rows` with labels), the prompt's rows together, and all
    rows in passing.
    """

    rows: StepArrays
    steps: xr.Dataset
    prompt: xr.Dataset | None
    all_rows: xr.Dataset | None


def trace_finished(
    lm: Writer, canvas: Canvas, detail: Detail, regions: dict[str, Tensor]
) -> tuple[list[tuple[Arrays, Favourites]], StepArrays]:
    """The attention of every step, by sample, with a leading step axis, and the favourite keys; and the rows as they were seen."""
    results, seen = [], None
    for sample, (length, start) in enumerate(zip(canvas.lengths, canvas.start, strict=True)):
        seen = _run_once(lm, canvas.only(sample), detail, {name: inside[sample : sample + 1, :length] for name, inside in regions.items()})
        text = _Text(start, length)
        arrays = _grouped(seen, text, detail, counts_per_layer=layers_differ(lm))
        if detail.keeps("norms"):
            arrays |= _norms(seen, text, detail)
        if detail.keeps("flow"):
            arrays |= _flow(seen, text, np.stack([region[sample, :length].numpy() for region in regions.values()]), detail)
        if detail.patterns:
            arrays["pattern"] = _patterns(seen, text)
        favourites = Favourites(length, detail.top_keys)
        if detail.keeps("top_keys"):
            favourites.add(seen.rows, 0, range(start, length), offset=0, width=length)
        results.append((arrays, favourites))
    assert seen is not None
    return results, seen.rows


@dataclass(frozen=True)
class _Text:
    """A sample's text: step t is row `start - 1 + t`."""

    start: int
    length: int

    @property
    def steps(self) -> int:
        return self.length - self.start


def _run_once(lm: Writer, canvas: Canvas, detail: Detail, regions: dict[str, Tensor]) -> _Seen:
    (length,), (start,) = canvas.lengths, canvas.start
    rows, prompt_rows = torch.arange(start - 1, length - 1)[None], torch.arange(start)[None]
    each = torch.eye(length - start, dtype=torch.bool)[:, None]
    workspace = Workspace()
    of_steps = RowsRecorder(rows, {str(step): row for step, row in enumerate(each)}, detail, workspace)
    everyone = {"prompt": torch.ones_like(prompt_rows, dtype=torch.bool)}
    of_prompt = RowsRecorder(prompt_rows, everyone, replace(detail, patterns=()), workspace, with_flow=True)
    wants_prompt = "prompt" in detail.groups or detail.keeps("flow")

    def reduce_at_once(layers: SeenLayers) -> None:
        of_steps.add(layers)
        if wants_prompt:
            of_prompt.add(layers)

    tap = Tap(
        lm.module,
        TapRequest(
            keep=["norms"] if detail.keeps("norms") else [],
            patterns=detail.patterns,
            regions={name: inside[:, : length - 1] for name, inside in regions.items()} if detail.keeps("flow") else None,
            padding=lambda _forward: torch.ones(1, length - 1, dtype=torch.bool),
            step_on=lm.module,
            on_seen=reduce_at_once,
        ),
    )
    tokens = canvas.tokens[:, : length - 1]
    real = torch.ones_like(tokens, dtype=torch.bool)
    with tap:
        lm.run_pass(Pass([0], tokens, real, torch.zeros_like(real), torch.tensor([0])))
    in_passing, steps, *prompt = fetch_steps(tap.take_step(), of_steps.recorded, *([of_prompt.recorded] if wants_prompt else []))
    return _Seen(
        steps,
        assemble([steps], with_steps=False, attributes={}),
        assemble(prompt, with_steps=False, attributes={}) if prompt else None,
        assemble([in_passing], with_steps=False, attributes={}) if detail.keeps("norms") or detail.patterns else None,
    )


def _grouped(seen: _Seen, text: _Text, detail: Detail, *, counts_per_layer: bool) -> Arrays:
    """What is kept by query group: one row per step, and the prompt's rows at step 0."""
    arrays: Arrays = {}
    for kind in ("mass", "halves", "entropy", "geometry"):
        for name in VARIABLES[kind] if detail.keeps(kind) else ():
            per_head = detail.per_head(kind)
            dims, steps = _values(seen.steps, name, text, per_head, counts_per_layer)
            axis = dims.index("group")
            steps = np.moveaxis(steps, axis, 0)[: text.steps]
            inner = tuple(dim for dim in dims if dim != "group")
            parts = {"predicting": _until_row(steps, inner, text)}
            if "prompt" in detail.groups:
                assert seen.prompt is not None
                _, prompt = _values(seen.prompt, name, text, per_head, counts_per_layer)
                parts["prompt"] = _at_step_0(name, np.moveaxis(prompt, axis, 0)[0], inner, parts["predicting"], text)
            arrays[name] = (("step", *dims), np.stack([parts[group] for group in detail.groups], axis=1 + axis))
    return arrays


def _values(seen: xr.Dataset, name: str, text: _Text, per_head: bool, counts_per_layer: bool) -> tuple[tuple[str, ...], np.ndarray]:
    """One sample of a variable, heads averaged where layers are kept."""
    values = seen[name].variable.isel(sample=0)
    if name in COUNTS and not counts_per_layer:
        values = values.isel(layer=0)
    dims, array = tuple(map(str, values.dims)), values.values
    if "head" in dims and (name in COUNTS or not per_head):
        axis = dims.index("head")
        dims, array = dims[:axis] + dims[axis + 1 :], mean_over_heads(array, axis)
    return dims, array


def _until_row(array: np.ndarray, inner: tuple[str, ...], text: _Text) -> np.ndarray:
    """(step, ..., key): what lies behind a step's row does not exist at that step."""
    if "key" not in inner:
        return array
    axis = 1 + inner.index("key")
    array = np.moveaxis(shifted(array, axis, 0, text.length), axis, 1).copy()
    array[np.arange(text.length) > np.arange(len(array))[:, None] + text.start - 1] = np.nan
    return np.moveaxis(array, 1, axis)


def _at_step_0(name: str, prompt: np.ndarray, inner: tuple[str, ...], like: np.ndarray, text: _Text) -> np.ndarray:
    """The prompt's rows belong to step 0; at later steps there are none, so sums are 0 and means do not exist."""
    empty = 0.0 if name.startswith(("mass", "visible", "rows")) else np.nan
    result = np.where(np.isnan(like) & ("key" in inner), np.nan, empty).astype(like.dtype)
    result[0] = _until_row(prompt[None], inner, text)[0]
    return result


def _norms(seen: _Seen, text: _Text, detail: Detail) -> Arrays:
    """Norms of the rows that a step computes, and of all keys up to them."""
    assert seen.all_rows is not None
    arrays: Arrays = {}
    for name in VARIABLES["norms"]:
        values = seen.all_rows[name].variable.isel(sample=0)
        dims, array = tuple(map(str, values.dims)), values.values
        if not detail.per_head("norms"):
            dims, array = ("layer", dims[-1]), mean_over_heads(array, dims.index("head"))
        array = shifted(array, array.ndim - 1, 0, text.length)
        every_step = _until_row(np.repeat(array[None], text.steps, axis=0), (*dims[:-1], "key"), text)
        if name == "query_norm":
            for step in range(1, text.steps):
                every_step[step, ..., : text.start - 1 + step] = np.nan
        arrays[name] = (("step", *dims), every_step)
    return arrays


def _flow(seen: _Seen, text: _Text, inside: np.ndarray, detail: Detail) -> Arrays:
    """Step 0: the prompt's rows. Later a step's row is in one place: its mass by region of the keys, in the regions that the row is in."""
    assert seen.prompt is not None
    keys = seen.steps.sizes["key"]
    into = inside[:, :keys].astype(np.float32)  # (key region, key)
    from_row = inside[:, text.start - 1 : text.length - 1].T.astype(np.float32)  # (step, query region)
    mass = np.nan_to_num(seen.steps["mass"].variable.isel(sample=0).values)[:, :, : text.steps, : into.shape[1]]
    even = (seen.steps["null"].variable * seen.steps["visible"].variable).isel(sample=0)
    null = np.nan_to_num(even.values)[..., : text.steps, : into.shape[1]]
    flow = np.einsum("lhsk,rk,sq->slhqr", mass, into, from_row)
    flow_null = np.einsum("lsk,rk,sq->slqr", null, into, from_row)
    rows = np.repeat(from_row[:, None], flow.shape[1], axis=1)
    first = seen.prompt.isel(sample=0)
    flow[0], flow_null[0], rows[0] = first["flow"].values, first["flow_null"].values, first["region_rows"].values
    regions = ("query_region", "key_region")
    if detail.per_head("flow"):
        heads = flow.shape[2]
        return {
            "flow": (("step", "layer", "head", *regions), flow),
            "flow_null": (("step", "layer", "head", *regions), np.repeat(flow_null[:, :, None], heads, axis=2)),
            "region_rows": (("step", "layer", "head", "query_region"), np.repeat(rows[:, :, None], heads, axis=2)),
        }
    return {
        "flow": (("step", "layer", *regions), flow.mean(2)),
        "flow_null": (("step", "layer", *regions), flow_null),
        "region_rows": (("step", "layer", "query_region"), rows),
    }


def _patterns(seen: _Seen, text: _Text) -> tuple[tuple[str, ...], np.ndarray]:
    """Full patterns of chosen heads: the rows that each step computes, over the keys that exist then."""
    assert seen.all_rows is not None
    whole = seen.all_rows["pattern"].variable.isel(sample=0).values[:, : text.length - 1, : text.length - 1]
    result = np.full((text.steps, len(whole), text.length, text.length), np.nan, np.float32)
    result[0, :, : text.start, : text.start] = whole[:, : text.start, : text.start]
    for step in range(1, text.steps):
        row = text.start - 1 + step
        result[step, :, row, : row + 1] = whole[:, row, : row + 1]
    return ("step", "chosen", "query", "key"), result
