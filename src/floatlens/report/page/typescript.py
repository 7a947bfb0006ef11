"""The page format as TypeScript: `python -m floatlens.report.page.typescript > web/src/data/schema.ts`."""

import types
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from floatlens.measures.roles import ROLES
from floatlens.report.page import schema
from floatlens.trace.schema import STATES

HEAD = "// Made by `make web-types` from src/floatlens/report/page/schema.py. Do not edit.\n"
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def in_typescript() -> str:
    """The whole module.

    Examples
    --------
    >>> "step: number;" in in_typescript()
    True
    """
    parts = [HEAD]
    parts += [f"export const {name} = {_literal(values)} as const;" for name, values in _constants().items()]
    for document in schema.DOCUMENTS:
        hints = get_type_hints(document)
        lines = [f"  {entry.name}: {typescript_of(hints[entry.name])};" for entry in fields(document)]
        parts.append("\n".join([f"export interface {document.__name__} {{", *lines, "}"]))
    names = " | ".join(f'"{name}"' for name in schema.ARRAYS)
    parts.append(f"export type ArrayName = {names};")
    axes = "\n".join(f"  {name}: {_literal(axes)}," for name, (axes, _) in schema.ARRAYS.items())
    parts.append(f"export const AXES: Record<ArrayName, readonly string[]> = {{\n{axes}\n}};")
    return "\n\n".join(parts) + "\n"


def _constants() -> dict[str, Any]:
    return {
        "PAGE_VERSION": schema.PAGE_VERSION,
        "SETS": schema.SETS,
        "INDICES": schema.INDICES,
        "STATES": STATES,
        "ROLES": ROLES,
        "ANCHOR": schema.ANCHOR,
        "NOT_MEASURED": schema.NOT_MEASURED,
    }


def _literal(value: Any) -> str:
    return (
        f"[{', '.join(_literal(own) for own in value)}]"
        if isinstance(value, tuple)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )


def typescript_of(hint: Any) -> str:
    """A Python type as a TypeScript type.

    Examples
    --------
    >>> typescript_of(list[int]), typescript_of(float | None), typescript_of(dict[str, str])
    ('number[]', 'number | null', 'Record<string, string>')
    """
    if hint in PLAIN:
        return PLAIN[hint]
    if get_origin(hint) is list:
        return f"{typescript_of(get_args(hint)[0])}[]"
    if get_origin(hint) is dict:
        return f"Record<string, {typescript_of(get_args(hint)[1])}>"
    if isinstance(hint, types.UnionType):
        return " | ".join(map(typescript_of, get_args(hint)))
    return hint.__name__


if __name__ == "__main__":
    print(in_typescript(), end="")
