"""A small web server for one index: JSON over HTTP, and a page to try it in (extra ``serve``).

``eigenli serve INDEX`` runs it; :func:`pylate_eigenli.server.app.create_app` makes the application
for any ASGI server. Searches answer from one consistent state of the index and are batched; changes
happen one after the other.
"""
