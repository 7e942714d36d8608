"""One site of a federation: what it reserves, computes, writes down, says and hears, round by round."""
