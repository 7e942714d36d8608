"""What was ever spent on one data set: one book, kept as a budget or as a ledger."""
