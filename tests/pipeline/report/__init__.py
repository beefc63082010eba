"""Tests of reports: from the tables of a run to pictures and the page, in a browser too; without
Spark.
"""
