"""Pipeline: Spark jobs over histories and event logs; an optional extra."""
