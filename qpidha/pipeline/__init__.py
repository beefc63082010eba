"""Pipeline: Spark jobs over histories and journals; an optional extra that sees only the words."""
