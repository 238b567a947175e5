"""Secure aggregation: keys, masks, secret sharing, fixed point, and the two halves of the secure
sum.

Imports nothing of ours, opens no socket, and no file but key files. `docs/secagg.md` is the
protocol in words.
"""
