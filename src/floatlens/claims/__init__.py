"""What papers claim about attention in ARMs and MDMs, and verdicts on the twins by rules that were fixed beforehand."""
