"""Vouchers: by which one broker of a cluster says to another one who a client is, that has logged in there.

The client's broker gives out a voucher with a secret; the other broker asks for a proof that it is known, and has the
first broker compare it. The secret goes over no wire but that on which the client came.
"""

from __future__ import annotations

import hmac


def proof_of(secret: bytes, challenge: str) -> str:
    """What shows, for one challenge, that somebody knows the secret of a voucher."""
    return hmac.digest(secret, challenge.encode(), "sha256").hex()
