"""The embedded account kept alive for `pulumi` and for the verbs, which reach it through an environment to source.

``serving`` keeps it, ``api`` is AWS over HTTP, ``answers`` what AWS tells of what the account has as records, and
``fleet`` the instances of its HyperPod clusters.
"""
