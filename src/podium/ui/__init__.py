"""The page: what runs, what came of it and why, in a browser.

It keeps nothing of its own: every view is read anew from the objects that shell and notebook use,
and an open page is sent what changed of it.
"""
