"""``python -m studies``: the experiments, from the root of the repository."""

import typer

from studies.commands import asked_app, data_app, efficiency_app, neural_app, paper_app, peers_app
from tightset.cli import main

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Experiments, and the pages that they write.")
app.add_typer(data_app, name="data")
app.add_typer(paper_app, name="paper")
app.add_typer(efficiency_app, name="efficiency")
app.add_typer(asked_app, name="asked")
app.add_typer(neural_app, name="neural")
app.add_typer(peers_app, name="peers")

if __name__ == "__main__":
    main(app)
