"""Where the attention of one forward goes: the first token, the strongest key and the anchors, layer by layer, each with its null.

Decided here: the strongest key is chosen on one half of the rows and measured on the other; anchors follow the rule `lift`; which token
the strongest key is, is said of all rows together, among the keys that enough rows see.
"""

from typing import Any

import torch
import xarray as xr

from floatlens.decoding.tokens import token_text
from floatlens.measures.absorption import absorption_of_anchors, absorption_of_first_token, absorption_of_strongest_key
from floatlens.measures.anchors import find_anchors
from floatlens.measures.received_attention import measured

KEPT = ("mass", "halves")  # what a tap must keep for this
MEASURES = ("on the first token", "on the strongest key", "on the anchors")


def shares_by_layer(data: xr.Dataset, tokens: torch.Tensor, tokenizer: Any) -> list[dict[str, Any]]:
    """One row per measure, layer and query group: `value` and `null` in percent, `key` and `token` of the strongest key.

    Parameters
    ----------
    data
        What a tap saw of one text, with `KEPT`.
    tokens
        int64 (position): the text as the model read it.
    tokenizer
        Writes the strongest key's token.
    """
    shares = {
        "on the first token": absorption_of_first_token(data),
        "on the strongest key": absorption_of_strongest_key(data),
        "on the anchors": absorption_of_anchors(data, find_anchors(data)),
    }
    received = (data["mass"].mean("head") / data["visible"]).where(measured(data)).isel(sample=0)  # layer, group, key
    strongest = received.fillna(-1).argmax("key")
    rows = []
    for measure in MEASURES:
        share = shares[measure].isel(sample=0).mean("head") if "head" in shares[measure]["share"].dims else shares[measure].isel(sample=0)
        for layer in data["layer"].values:
            for group in data["group"].values:
                place = {"layer": layer, "group": group}
                key = int(strongest.sel(place))
                rows.append(
                    {
                        "group": str(group),
                        "layer": int(layer),
                        "measure": measure,
                        "value": float(share["share"].sel(place)),
                        "null": float(share["null"].sel(place)),
                        "key": key,
                        "token": token_text(tokenizer, int(tokens[key])),
                    }
                )
    return rows
