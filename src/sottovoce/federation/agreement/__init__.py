"""What sites agree on before anything is computed: terms, members and their keys, signatures, certificates."""
