"""How models are called where there is little room: by the last part of their name, as long as that tells them apart."""

from collections.abc import Iterable


def short_names(models: Iterable[str]) -> dict[str, str]:
    """The last part of each name, since folders are long; the whole name where two models share the last part.

    Examples
    --------
    >>> short_names(["/home/me/models/twin-mdm/", "twin-arm"])
    {'/home/me/models/twin-mdm/': 'twin-mdm', 'twin-arm': 'twin-arm'}
    >>> short_names(["one/mdm", "two/mdm"])
    {'one/mdm': 'one/mdm', 'two/mdm': 'two/mdm'}
    """
    last = {model: model.rstrip("/").rpartition("/")[2] for model in models}
    short = list(last.values())
    return {model: name if short.count(name) == 1 else model for model, name in last.items()}
