"""One adapter a family. The first that recognises a config draws up its blueprint; the last takes every autoregressive model."""

from floatlens.models.families import a2d, autoregressive, diffusion_gemma, dream, llada, masked_lm, remote, sdar, twin
from floatlens.models.families.adapter import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        remote.FAMILY,  # before LLaDA: LLaDA-MoE calls itself llada, too
        llada.FAMILY,
        dream.FAMILY,
        sdar.FAMILY,
        a2d.FAMILY,
        diffusion_gemma.FAMILY,
        masked_lm.FAMILY,
        twin.FAMILY,
        autoregressive.FAMILY,
    )
}
