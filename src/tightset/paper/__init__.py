"""The paper, reproduced: its seven data sets, its tables as printed, and the experiments behind them."""
