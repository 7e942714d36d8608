"""`sottovoce site`: what a person at one site of a federation does and sees."""
