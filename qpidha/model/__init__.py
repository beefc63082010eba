"""Words: the nouns every other room speaks; plain data, no behaviour that needs a broker, a clock
or a socket.
"""
