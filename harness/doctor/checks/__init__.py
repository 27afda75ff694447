"""The checks, one module a subject; each offers ``CHECKS`` (or ``checks(...)``)."""
