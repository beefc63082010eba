"""The pipeline without Spark: the format, the reader, the plain Python engine against brute force,
the generator.
"""
