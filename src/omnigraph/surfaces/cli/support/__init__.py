"""Support: what every command of the CLI needs: the call, its output, its waiting, its parameters."""
