"""What was ever spent on one data set: the budget of one process, the ledger that survives crashes, their filter."""
