"""The price of events: one interface, and one file for each way of bounding it."""
