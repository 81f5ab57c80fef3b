"""Groth16 (Groth, "On the Size of Pairing-based Non-interactive Arguments", 2016) over keys as snarkjs writes them."""
