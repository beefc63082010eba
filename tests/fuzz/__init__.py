"""The fuzzer: sessions made by a grammar and decoders given damaged bytes, in one process."""
