"""The connector: queues of a cluster as a data source and sink of Spark. Sees the words only;
brokers are reached over the network.
"""
