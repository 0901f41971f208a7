"""Security: users, their proofs, and rules of access. Pure but for the files of users."""
