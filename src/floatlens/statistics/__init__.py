"""Statistics over prompts: intervals, tests and effect sizes from one value per prompt. Needs numpy and xarray only.

`floatlens.measures` offers the same functions by name; docs/reference/statistics.md says which interval is used when, and what it covers.
"""
