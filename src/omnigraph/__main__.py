"""`python -m omnigraph`: the command line, where no script is installed."""

if __name__ == "__main__":
    from omnigraph.surfaces.cli.app import run

    run()
