"""Client commands: what command-line programs share and an application has no use for: global
options, exit codes, tables.
"""
