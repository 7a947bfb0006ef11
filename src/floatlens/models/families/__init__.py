"""One adapter per family. The first that recognises a config draws up its blueprint; the last takes every autoregressive model."""

from floatlens.models.families import a2d, adapted, autoregressive, diffusion_gemma, dream, llada, masked_lm, remote, sdar, twin
from floatlens.models.families.adapter import Family

FAMILIES: dict[str, Family] = {
    "twin": twin.FAMILY,
    "adapted": adapted.FAMILY,
    "remote": remote.FAMILY,  # before LLaDA: LLaDA-MoE calls itself llada, too
    "llada": llada.FAMILY,
    "dream": dream.FAMILY,
    "sdar": sdar.FAMILY,
    "a2d": a2d.FAMILY,
    "diffusion-gemma": diffusion_gemma.FAMILY,
    "masked-lm": masked_lm.FAMILY,
    "autoregressive": autoregressive.FAMILY,
}
