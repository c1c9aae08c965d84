"""The client of a server: the same graph over HTTP, with the same methods, values and errors."""
