"""Load: any input as blocks of typed rows, checked and published as one commit."""
