"""``cuzk bench``: the same proofs under several settings, in turn, and what the difference is.

``variations`` says what is compared, ``local`` and ``remote`` run one round of it, ``schedule`` puts the rounds in an
order in which a drift of the machine falls on all variations alike, ``results`` sums up, ``plot`` draws.
"""
