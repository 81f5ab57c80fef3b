"""The file formats the engine reads and writes.

Readers trust no length: every count is held against the size of the file before anything is allocated or mapped into an
array. Nothing here does arithmetic on points or coefficients; the native library checks those once a key is first used.
"""
