"""Export: what a graph holds at one commit, as files that a load takes back."""
