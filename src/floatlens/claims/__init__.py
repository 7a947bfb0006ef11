"""What papers claim about attention in ARMs and MDMs, and verdicts on the models of a study by rules that were fixed beforehand."""
