"""Candidate stores and exact top-k search."""

from twofold.index.index import Index as Index
