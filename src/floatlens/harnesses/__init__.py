"""floatlens models in the evaluation harnesses that people use already: lm-eval and inspect_ai.

`model.py` is what both share; `lm_eval_model.py` and `inspect_model.py` are the classes that the harnesses call, and import their harness;
`lm_eval_command.py` hands over to lm-eval's own command. Nothing here is imported unless it is asked for.
"""
