"""Management: what can be read and asked of a broker, over AMQP and over the admin socket; knows no
transport.
"""
