"""A small web server for one index: JSON over HTTP, and a page to try it in (extra ``serve``).

``eigenli serve INDEX`` runs it; :func:`pylate_eigenli.server.app.create_app` makes the application
for any ASGI server. Searches are batched, and each is answered from one generation of the index;
changes happen one after the other.
"""
