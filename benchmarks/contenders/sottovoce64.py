from contenders import sottovoce32


class Contender(sottovoce32.Contender):
    dtype = "float64"
