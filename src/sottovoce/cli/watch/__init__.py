"""`sottovoce site watch` and `federation watch`: the logs of sites as one page in a browser of the same machine.

reading   a log, line by line, while it grows, is cut off or is replaced
story     what the lines of one site, or of several, add up to
page      that as HTML, with its `chart`
serving   the page, at an address of this machine only
command   the two commands
"""
