"""Copy: a whole graph with its history at another address, or one state of it as a new graph."""
