"""Programs of sums: questions whose answers are noisy sums over all rows of all sites, and analyses made of them."""
