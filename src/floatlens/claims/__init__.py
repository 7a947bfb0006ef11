"""The claims of two papers, checked on the twins: evidence from traces, masking and questions, and a verdict for each claim by a rule that was written down before."""
