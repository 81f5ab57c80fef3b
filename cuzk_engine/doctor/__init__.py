"""``cuzk doctor``: looks at everything that proving depends on, and says what is wrong and what to do about it.

Nothing is changed: no folder is made, no lock taken, no process started.
"""
