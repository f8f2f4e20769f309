"""Mutation tests of the code that decides who is trusted, what is verified, which addresses are used and what is paid."""
