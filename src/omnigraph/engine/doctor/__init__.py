"""Doctor: a whole graph looked at, and what is wrong with it said so that a person can act on it."""
