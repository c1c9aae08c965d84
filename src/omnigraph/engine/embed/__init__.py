"""Embed: the vectors of `@embed` properties, made from the texts that they stand for."""
