"""Who a caller is, the same for all protocols.

Protocol servers carry the bytes of their own login messages; this package decides. `Authenticator` is its interface: it takes a SCRAM
exchange, a user name and password, a token, or a certificate's subject, and returns a `streams.principal.Principal`.

| file | rule |
|---|---|
| `settings.py`, `peer.py` | which proofs the clients of a listener may bring |
| `users.py` | where credentials come from, and what an unknown user gets |
| `credentials.py` | how credentials are made, and how a password is checked |
| `scram.py` | the messages of one SCRAM login |
| `tokens.py`, `signing_keys.py`, `issuer.py` | which JSON Web Tokens are accepted, and where the issuer's keys come from |
| `certificates.py` | the user name in a client certificate |
| `presented.py` | logins in an `Authorization` value: HTTP and gRPC |
| `forwarding.py` | how a server tells another one for whom it forwards a request |
| `verified_passwords.py` | passwords that were verified before |
| `failures.py` | how many failed logins an address and a user may have |

Source: RFC 5802 and RFC 7677 (SCRAM), RFC 7519 and RFC 8725 (JSON Web Tokens), KIP-84, KIP-255, KIP-371, KIP-554.
"""
