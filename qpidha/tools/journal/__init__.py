"""The write-ahead log of a stopped broker: what is in it, salvage, compaction."""
