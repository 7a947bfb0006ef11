"""The page: what a browser shows of traces, evaluations and demos.

`gather.py` finds out what it was given; `sample.py`, `studies.py` and `training.py` turn that into a *page group* (`schema.py`, and
docs/reference/page-format.md), which `group.py` writes; `html.py` puts page and data into one file, `server.py` serves them on this
machine, and `widget.py` shows them in a notebook. The page itself is built from web/ into report/app.
"""
