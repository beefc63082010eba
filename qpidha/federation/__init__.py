"""Federation: links to other brokers and clusters, and the routes that move messages over them. The
primary runs them; the records of them are in `broker/federation.py`.
"""
