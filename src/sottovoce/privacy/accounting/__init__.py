"""What events cost: one interface, and one file for each way of bounding."""
