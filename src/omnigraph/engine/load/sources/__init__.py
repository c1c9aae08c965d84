"""Sources: the kinds of input that a load reads; `open_source` tells them apart."""
