"""The proving pipeline of one partition on one device: evaluate → upload → H → five MSMs → assemble → verify.

``cuzk prove`` calls it in its own process, a device process from its worker threads. It knows devices by their protocol, keys and witnesses by
their formats; it knows no jobs' store, no sockets and no configuration file.
"""

from __future__ import annotations
