"""Schema: showing, planning and applying the schema of a branch."""
