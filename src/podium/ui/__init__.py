"""The page: runs, sweeps, jobs and models in a browser.

It keeps nothing of its own: every view is read anew from the objects that shell and notebook use,
and an open page is sent what changed of it.
"""
