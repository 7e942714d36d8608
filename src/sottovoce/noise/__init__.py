"""Where noise comes from: a seed (studies), the operating system (private rows), a key (real sites), or the caller."""
