"""Rules: one rewrite a file. Each keeps every result and makes a plan cheaper; tests turn each on and off."""
